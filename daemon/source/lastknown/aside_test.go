package lastknown

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// If the snapshot is not a regular file, reading it does not block, and Edgeway renames it before writing a new
// snapshot.
func TestStateIsNotRegularFile(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			h := boot(t, dir)
			h.serve(aService("web", 80))
			time.Sleep(2 * time.Second)
			h.stop()
			path := filepath.Join(dir, snapshotName)
			if err := errors.Join(os.Remove(path), place(path)); err != nil {
				t.Fatal(err)
			}
			h = boot(t, dir)
			if got := h.Status().Fault.Message; !strings.Contains(got, "not a regular file") {
				t.Errorf("%s: fault %q", name, got)
			}
			h.serve(aService("web", 80))
			time.Sleep(2 * time.Second)
			h.stop()
			h = boot(t, dir)
			defer h.stop()
			if len(h.loaded.objects) != 1 {
				t.Errorf("%s: %d objects afterwards", name, len(h.loaded.objects))
			}
		})
	}
}

// Edgeway keeps only the latest damaged snapshot, even if the latest one is a directory and the previous one is a file.
func TestDamagedFilesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		damaged := filepath.Join(dir, snapshotName+".damaged")
		for i := range 4 {
			if err := os.WriteFile(filepath.Join(dir, snapshotName), fmt.Appendf(nil, "damage %d", i),
				0o600); err != nil {
				t.Fatal(err)
			}
			boot(t, dir).stop()
			if last, err := os.ReadFile(damaged); err != nil || string(last) != fmt.Sprintf("damage %d", i) {
				t.Errorf("set aside is %q %v", last, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("%v %v", entries, err)
			}
		}
		if err := os.Mkdir(filepath.Join(dir, snapshotName), 0o700); err != nil {
			t.Fatal(err)
		}
		boot(t, dir).stop()
		if info, err := os.Stat(damaged); err != nil || !info.IsDir() {
			t.Errorf("set aside is %v %v", info, err)
		}
	})
}

// After a downgrade, Edgeway cannot read the state that the later version saved, but does not treat the state as
// damaged. Unless the earlier version replaces the state, the later version can use it again after an upgrade.
func TestNewerStateIsKeptAfterDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, snapshotName)
		newer := []byte(`{"format":"edgeway last-known state","version":2,"new":true}` + "\nanything")
		if err := os.WriteFile(path, newer, 0o600); err != nil {
			t.Fatal(err)
		}
		h := boot(t, dir)
		if got := h.Status().Fault.Message; h.loaded.synced || !strings.Contains(got, "newer") ||
			strings.Contains(h.log.String(), "level=ERROR") {
			t.Errorf("synced %v, fault %q, log:\n%s", h.loaded.synced, got, h.log)
		}
		if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, newer) {
			t.Errorf("the state did not stay: %q %v", kept, err)
		}
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if len(h.loaded.objects) != 1 {
			t.Errorf("%d objects after the next snapshot", len(h.loaded.objects))
		}
	})
}
