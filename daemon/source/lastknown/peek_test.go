package lastknown

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fileSizes returns the size of each file in a directory.
func fileSizes(t *testing.T, dir string) (out map[string]int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out = map[string]int64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.Size()
	}
	return out
}

func TestPeekChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(everyKind()...)
		time.Sleep(2 * time.Second)
		h.stop()
		writing := filepath.Join(dir, ".lastknown.jsonl4711") // simulates the temporary file of a running daemon
		if err := os.WriteFile(writing, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		before := fileSizes(t, dir)
		objects, _, err := Peek(dir)
		if diff := cmp.Diff(everyKind(), objects, equate); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		for name, content := range map[string][]byte{"damaged": slices.Repeat([]byte("x"), 100), "empty": nil} {
			if err := os.WriteFile(filepath.Join(dir, snapshotName), content, 0o600); err != nil {
				t.Fatal(err)
			}
			before[snapshotName] = int64(len(content))
			if objects, _, err := Peek(dir); err == nil || len(objects) > 0 {
				t.Errorf("%s: %v with %d objects", name, err, len(objects))
			}
			if diff := cmp.Diff(before, fileSizes(t, dir)); diff != "" {
				t.Errorf("%s: the folder changed (-before +after):\n%s", name, diff)
			}
		}
		if _, _, err := Peek(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no state: %v", err)
		}
	})
}
