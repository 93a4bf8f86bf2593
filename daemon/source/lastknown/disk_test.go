package lastknown

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"edgeway/daemon/source"
)

func TestFilePermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "b")
		h := boot(t, dir)
		h.serve(everyKind()...)
		time.Sleep(2 * time.Second)
		h.stop()
		for path, want := range map[string]os.FileMode{
			dir: 0o700 | os.ModeDir, filepath.Join(dir, snapshotName): 0o600,
		} {
			if fi, err := os.Stat(path); err != nil || fi.Mode() != want {
				t.Errorf("%s: %v %v, want %v", path, fi, err, want)
			}
		}
	})
}

func TestDamagedSnapshotIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(everyKind()...)
		time.Sleep(2 * time.Second)
		h.stop()
		path := filepath.Join(dir, snapshotName)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damages := map[string][]byte{
			"empty": {}, "half": good[:len(good)/2], "longer": append(slices.Clone(good), "{}\n"...),
			"version": bytes.Replace(good, []byte(`"version":1`), []byte(`"version":0`), 1),
		}
		for i := 0; i < len(good); i += 7 {
			bad := slices.Clone(good)
			bad[i] ^= 0x10
			damages[fmt.Sprintf("bit of byte %d", i)] = bad
		}
		for name, bad := range damages {
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			h := boot(t, dir)
			if h.loaded.synced || len(h.loaded.objects) > 0 {
				t.Errorf("%s: synced %v with %d objects", name, h.loaded.synced, len(h.loaded.objects))
			}
			if n := strings.Count(h.log.String(), "level=ERROR"); n != 1 || h.Status().Fault.Message == "" {
				t.Errorf("%s: %d error lines, status %+v", name, n, h.Status())
			}
			h.stop()
			if kept, err := os.ReadFile(path + ".damaged"); err != nil || !bytes.Equal(kept, bad) {
				t.Errorf("%s: the file set aside is not the damaged one: %v", name, err)
			}
			os.Remove(path + ".damaged")
		}
	})
}

func TestStateOfAnotherServerIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		other := New(dir, Options{Cluster: server("https://198.51.100.1"), Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got := newMemory()
		if err := other.Run(ctx, got); err != nil || got.synced || len(got.objects) > 0 {
			t.Errorf("err %v, synced %v with %d objects", err, got.synced, len(got.objects))
		}
		if !strings.Contains(other.Status().Fault.Message, "another API server") {
			t.Errorf("status %+v", other.Status())
		}
	})
}

// After the API server's URL changes, Edgeway reports a fault until it has saved the new server's objects.
func TestStateOfAnotherServerIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		h.api = newMemory()
		h.Store = New(dir, h.options("https://198.51.100.1"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx, newMemory()) }()
		time.Sleep(time.Minute)
		if st := h.Status(); st.Synced || st.Fault.Message == "" {
			t.Errorf("status %+v although the new server was not heard", st)
		}
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		if st := h.Status(); !st.Synced || st.Fault.Message != "" || time.Since(st.LastContact) > 5*time.Second {
			t.Errorf("status %+v after the new state was saved", st)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestFailedWriteIsReportedAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		h := boot(t, dir)
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h.serve(aService("web", 80))
		time.Sleep(5 * time.Minute)
		if st := h.Status(); st.Fault.Message == "" {
			t.Errorf("status %+v", st)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if st := h.Status(); st.Fault.Message != "" {
			t.Errorf("status %+v", st)
		}
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if len(h.loaded.objects) != 1 {
			t.Errorf("%d objects", len(h.loaded.objects))
		}
	})
}

func stat(t *testing.T, dir string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// With 1,000 EndpointSlices of 50 endpoints each and constant changes, Edgeway writes at most 1 GB a day. Edgeway saves
// a single change to a small state within seconds, and saves the last change when it receives SIGTERM.
func TestWriteRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		var many []source.Object
		for i := range 1000 {
			many = append(many, aSlice(fmt.Sprintf("svc-%d", i), 50))
		}
		h.serve(many...)
		time.Sleep(2 * time.Second)
		last, written := stat(t, dir), stat(t, dir).Size()
		for began := time.Now(); time.Since(began) < 2*time.Hour; time.Sleep(10 * time.Second) {
			h.api.Upsert(aSlice("svc-7", 1+time.Now().Second()/10))
			h.Commit(nil)
			synctest.Wait()
			if now := stat(t, dir); !os.SameFile(last, now) {
				last, written = now, written+now.Size()
			}
		}
		if written < 60<<20 || written > 90<<20 {
			t.Errorf("%d MiB were written in 2 hours", written>>20)
		}
		want := h.api.sorted()
		h.stop()
		h = boot(t, dir)
		if diff := cmp.Diff(want, h.loaded.sorted(), equate); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.api.Upsert(aService("dns", 53))
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		if st, err := readState(dir, nil); err != nil || len(st.objects) != 2 {
			t.Errorf("a change of a small state after 2 s: %+v, %v", st, err)
		}
		h.stop()
	})
}

// The pause after a write lasts at least 100 times as long as the write, and longer for a large snapshot.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		size       int64
		took, want time.Duration
	}{
		{1150, time.Millisecond, 100 * time.Millisecond},
		{11_500_000, time.Second, 1000 * time.Second},
		{11_500_000, 11 * time.Second, 1100 * time.Second},
		{maxFile, 0, 46684427 * time.Millisecond},
	} {
		if got := writePause(c.size, c.took).Truncate(time.Millisecond); got != c.want {
			t.Errorf("%d bytes in %s: %s, want %s", c.size, c.took, got, c.want)
		}
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		filler := filepath.Join(dir, "filler")
		if err := os.WriteFile(filler, make([]byte, 16<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(5 * time.Minute)
		want := "last-known state: " + dir + " is full: no space left on device"
		if st := h.Status(); st.Fault.Message != want || st.Fault.Fix != "df -h "+dir {
			t.Errorf("status %+v, want %s", st, want)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if st := h.Status(); st.Fault.Message+st.Fault.Fix != "" {
			t.Errorf("status %+v", st)
		}
		h.stop()
	})
}
