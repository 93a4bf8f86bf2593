package lastknown

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSameClusterUnderAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.o.Cluster = func() Cluster { return Cluster{"https://192.0.2.1:6443", []string{"old", "new"}} }
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		for _, c := range []struct {
			Cluster
			same bool
		}{
			{Cluster{"https://api.example:443/", []string{"new", "newer"}}, true},
			{Cluster{"https://192.0.2.1:6443", []string{"other"}}, true},
			{Cluster{"https://192.0.2.1:6443", nil}, true},
			{Cluster{"https://api.example:443", []string{"other"}}, false},
			{Cluster{"https://api.example:443", nil}, false},
			{Cluster{"https://192.0.2.1:6443/k8s/clusters/b", []string{"new"}}, false},
		} {
			s := New(dir, Options{Cluster: func() Cluster { return c.Cluster }, Logger: slog.New(slog.DiscardHandler)})
			if objects, ok := s.Load(); ok != c.same || len(objects) > 0 != c.same {
				t.Errorf("%+v: usable %v, %d objects", c.Cluster, ok, len(objects))
			}
		}
	})
}

// SavedAt ignores the snapshot's modification time if that time is in the future. The modification time can be in the
// future if an operator copied the snapshot or if the host's clock was wrong.
func TestAgeIsNotInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		want, _ := h.SavedAt()
		future := time.Now().Add(time.Hour)
		if err := os.Chtimes(filepath.Join(dir, snapshotName), future, future); err != nil {
			t.Fatal(err)
		}
		h = boot(t, dir)
		defer h.stop()
		if age, ok := h.SavedAt(); !ok || age.After(want) {
			t.Errorf("age %s, want %s", age, want)
		}
	})
}

// If the host's clock was ahead during a write, later confirmations still correct the state's age, both before and
// after a restart.
func TestAgeAfterClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		var ahead atomic.Int64 // holds a time.Duration
		ahead.Store(int64(10_000 * time.Hour))
		h.o.ConfirmedAt = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		ahead.Store(0)
		time.Sleep(agePeriod)
		h.stop()
		if age, _ := h.SavedAt(); time.Since(age) < 0 || time.Since(age) > agePeriod {
			t.Errorf("age %s at %s", age, time.Now())
		}
		h = boot(t, dir)
		defer h.stop()
		if age, _ := h.SavedAt(); time.Since(age) < 0 || time.Since(age) > agePeriod {
			t.Errorf("age %s at %s after the next start", age, time.Now())
		}
	})
}
