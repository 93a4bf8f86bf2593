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

	"edgeway/daemon/source"
)

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "b")
		h := boot(t, dir)
		h.serve(everyKind()...)
		time.Sleep(2 * time.Second)
		h.stop()
		for path, want := range map[string]os.FileMode{
			dir: 0o700 | os.ModeDir, filepath.Join(dir, snapshotName): 0o600, filepath.Join(dir, journalName): 0o600,
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
			"empty": {}, "half": good[:len(good)/2], "no newline": good[:len(good)-1], "longer": append(slices.Clone(good), "{}\n"...),
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
			if n := strings.Count(h.log.String(), "level=ERROR"); n != 1 || h.Status().Err == "" {
				t.Errorf("%s: %d error lines, status %+v", name, n, h.Status())
			}
			h.stop()
			aside, err := filepath.Glob(path + ".damaged-*")
			if err != nil || len(aside) != 1 {
				t.Fatalf("%s: set aside: %q %v", name, aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, bad) {
				t.Errorf("%s: the file set aside is not the damaged one: %v", name, err)
			}
			os.Remove(aside[0])
		}
	})
}

func TestTornJournalCountsUpToTheTear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		for i := range 5 {
			h.tee.Upsert(aService(fmt.Sprintf("svc-%d", i), 80))
			h.Commit(nil)
			time.Sleep(2 * time.Second)
		}
		h.stop()
		path := filepath.Join(dir, journalName)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for cut := len(whole) - 1; cut >= 0; cut -= 11 {
			if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			h := boot(t, dir)
			h.stop()
			want := 1 + bytes.Count(whole[:cut], []byte("\n"))/2 // a header, then two lines for each Service
			if lines := bytes.Count(whole[:cut], []byte("\n")); lines == 0 {
				want = 1
			}
			if got := len(h.loaded.objects); !h.loaded.synced || got != want {
				t.Errorf("cut at %d: %d objects, want %d", cut, got, want)
			}
			torn := cut > 0 && whole[cut-1] != '\n'
			if n := strings.Count(h.log.String(), "level=WARN"); (n == 1) != torn || n > 1 {
				t.Errorf("cut at %d: %d warnings, torn %v", cut, n, torn)
			}
		}
	})
}

// A crash between the renames of snapshot and journal leaves a journal that belongs to the snapshot before.
func TestJournalOfAnotherSnapshotIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.tee.Upsert(aService("old", 80))
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		h.stop()
		old, err := os.ReadFile(filepath.Join(dir, journalName))
		if err != nil {
			t.Fatal(err)
		}
		h = boot(t, dir)
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

func TestStateOfAnotherServerIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		other := New(dir, Options{Server: "https://198.51.100.1", Objects: newMemory().all, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got := newMemory()
		if err := other.Run(ctx, got); err != nil || got.synced || len(got.objects) > 0 {
			t.Errorf("err %v, synced %v with %d objects", err, got.synced, len(got.objects))
		}
		if !strings.Contains(other.Status().Err, "another API server") {
			t.Errorf("status %+v", other.Status())
		}
	})
}

func size(t *testing.T, dir, name string) int64 {
	t.Helper()
	fi, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

func TestAChangeCostsWhatItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		var many []source.Object
		for i := range 3000 {
			many = append(many, aSlice(fmt.Sprintf("svc-%d", i), 5))
		}
		h.serve(many...)
		time.Sleep(2 * time.Second)
		snapshot, journal := size(t, dir, snapshotName), size(t, dir, journalName)
		h.tee.Upsert(aSlice("svc-7", 4))
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		if got := size(t, dir, journalName) - journal; got < 100 || got > 1000 {
			t.Errorf("one change wrote %d bytes", got)
		}

		// Once the journal has outgrown the snapshot, both begin anew.
		for round := 0; size(t, dir, journalName) < snapshot; round++ {
			if round == 100 {
				t.Fatal("the journal does not grow")
			}
			for _, o := range many[:500] {
				h.tee.Upsert(o)
			}
			h.Commit(nil)
			time.Sleep(2 * time.Second)
		}
		for range 2 {
			h.tee.Upsert(aSlice("svc-7", 3))
			h.Commit(nil)
			time.Sleep(2 * time.Second)
		}
		if got := size(t, dir, journalName); got > 2000 {
			t.Errorf("the journal still has %d bytes", got)
		}
		want := h.api.sorted()
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if diff := cmp.Diff(want, h.loaded.sorted(), equate); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	})
}

func TestWriteThatFailsIsNamedAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		h := boot(t, dir)
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h.serve(aService("web", 80))
		time.Sleep(5 * time.Minute)
		if n := strings.Count(h.log.String(), "level=ERROR"); n != 1 || h.Status().Err == "" {
			t.Errorf("%d error lines, status %+v", n, h.Status())
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if st := h.Status(); st.Err != "" {
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
