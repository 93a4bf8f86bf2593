package lastknown

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon/source"
)

// before copies the state of the previous version to a new folder and returns the journal's path and content.
func before(t *testing.T) (dir, journal string, content []byte) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/before")); err != nil {
		t.Fatal(err)
	}
	journal = filepath.Join(dir, journalName)
	content, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	return dir, journal, content
}

// After an upgrade from a version with a journal, Edgeway serves that version's state. The first write removes the
// journal, and the previous version can still read the snapshot.
func TestUpgradeReadsJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, journal, _ := before(t)
		h := boot(t, dir)
		want := append([]source.Object{aService("dns", 53)}, everyKind()...)
		want = append(want[:2], want[2:]...)
		want[2] = aSlice("web", 1)
		want = append(want[:4], want[5:]...)
		if diff := cmp.Diff(want, h.loaded.sorted(), equate); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		if held := h.Held(); len(held) != 1 || held[0].Name != "web" || len(h.ServerAddrs()) != 2 {
			t.Errorf("held %v, API server at %v", held, h.ServerAddrs())
		}
		if age, _ := h.Age(); !age.Equal(time.Date(2000, 1, 1, 0, 0, 3, 0, time.UTC)) {
			t.Errorf("age %s, want that of the journal's end", age)
		}
		h.serve(want...)
		time.Sleep(2 * time.Second)
		if _, err := os.Stat(journal); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the journal is still there: %v", err)
		}
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if diff := cmp.Diff(want, h.loaded.sorted(), equate); diff != "" {
			t.Errorf("after the first write (-want +got):\n%s", diff)
		}
	})
}

// A power failure during the last write before the upgrade damages the journal's last line.
func TestTornJournalIsReadUpToDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, journal, whole := before(t)
		for cut := len(whole) - 1; cut >= 0; cut -= 11 {
			if err := os.WriteFile(journal, whole[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			h := boot(t, dir)
			h.stop()
			// The lines of the journal are the header, a new Service, a changed EndpointSlice, a deleted ServiceCIDR,
			// and a confirmation. The newline of the last line may be missing.
			want := []int{6, 6, 7, 7, 6, 6}[bytes.Count(append(whole[:cut:cut], '\n'), []byte("}\n"))]
			if got := len(h.loaded.objects); !h.loaded.synced || got != want {
				t.Errorf("cut at %d: %d objects, want %d", cut, got, want)
			}
			if torn := cut > 0 && whole[cut-1] != '\n' && whole[cut] != '\n'; strings.Contains(h.log.String(), "level=WARN") != torn {
				t.Errorf("cut at %d: torn %v, log:\n%s", cut, torn, h.log)
			}
		}
	})
}

// If the previous version crashed after renaming the snapshot but before renaming the journal, the journal of an
// earlier snapshot remains.
func TestJournalOfAnotherSnapshotIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, old := before(t)
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("new", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		if err := os.WriteFile(filepath.Join(dir, journalName), old, 0o600); err != nil {
			t.Fatal(err)
		}
		h = boot(t, dir)
		defer h.stop()
		if diff := cmp.Diff([]source.Object{aService("new", 80)}, h.loaded.sorted(), equate); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	})
}

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

// The age of the state is never negative, even if the file was copied or the clock is wrong.
func TestAgeIsNotInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		want, _ := h.Age()
		future := time.Now().Add(time.Hour)
		if err := os.Chtimes(filepath.Join(dir, snapshotName), future, future); err != nil {
			t.Fatal(err)
		}
		h = boot(t, dir)
		defer h.stop()
		if age, ok := h.Age(); !ok || age.After(want) {
			t.Errorf("age %s, want %s", age, want)
		}
	})
}

// If the clock was ahead during a write, later confirmations still update the age, before and after a restart.
func TestAgeAfterClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		var ahead atomic.Int64 // ahead holds a time.Duration
		ahead.Store(int64(10_000 * time.Hour))
		h.o.Confirmed = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		ahead.Store(0)
		time.Sleep(refresh)
		h.stop()
		if age, _ := h.Age(); time.Since(age) < 0 || time.Since(age) > refresh {
			t.Errorf("age %s at %s", age, time.Now())
		}
		h = boot(t, dir)
		defer h.stop()
		if age, _ := h.Age(); time.Since(age) < 0 || time.Since(age) > refresh {
			t.Errorf("age %s at %s after the next start", age, time.Now())
		}
	})
}
