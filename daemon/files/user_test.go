package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// The kernel decides: by the owner, by the group, by a supplementary group, and by the folders on the way.
func TestFilesAreReadWithTheRightsOfTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it takes the rights of another user")
	}
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	id := User{Name: "somebody", UID: 54321, GID: 54322, Groups: []int{54323}}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		uid, gid int
		mode     os.FileMode
		readable bool
	}{
		"root's":         {0, 0, 0o600, false},
		"everybody's":    {0, 0, 0o604, true},
		"own":            {54321, 0, 0o600, true},
		"own, closed":    {54321, 0, 0o000, false},
		"of the group":   {0, 54322, 0o640, true},
		"of a group":     {0, 54323, 0o640, true},
		"of another one": {0, 54324, 0o640, false},
		"closed/inside":  {54321, 54322, 0o644, false},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, c.uid, c.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		var read error
		if err := id.Do(func() { _, read = os.ReadFile(path) }); err != nil {
			t.Fatal(err)
		}
		if (read == nil) != c.readable || read != nil && !errors.Is(read, fs.ErrPermission) {
			t.Errorf("%s: error %v, readable should be %t", name, read, c.readable)
		}
		if _, err := os.ReadFile(path); err != nil {
			t.Errorf("%s: the rights of this process have changed: %v", name, err)
		}
	}
}

func TestAUserThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	if _, err := LookupUser("no-such-user-of-this-host"); err == nil {
		t.Error("no error")
	}
	id, err := LookupUser("root")
	if err != nil || id.UID != 0 || id.GID != 0 {
		t.Errorf("root is %+v, %v", id, err)
	}
}
