package file

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// run starts a source, and fails the test unless the source calls Synced exactly once.
func run(t *testing.T, paths ...string) *memory {
	m := newMemory()
	src := New(Options{Paths: paths, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- src.Run(ctx, m) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil || m.synced != 1 {
			t.Errorf("Run: %v, synced %d times", err, m.synced)
		}
	})
	eventually(t, "the first reading", 30*time.Second, func() bool {
		st := src.Status()
		return st.Synced || st.Fault.Message != ""
	})
	return m
}

// watchTime is the time limit for detecting a change through inotify. Any poll comes later.
const watchTime = faultyPollPeriod - time.Second

func TestFileChangesAreDetected(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", called("a"))
	single := filepath.Join(t.TempDir(), "single.yaml")
	if err := os.WriteFile(single, []byte(called("single")), 0o600); err != nil {
		t.Fatal(err)
	}
	m := run(t, f.dir, single)
	see := func(names string) {
		t.Helper()
		eventually(t, names, watchTime, func() bool { return m.names() == names })
	}
	see("Service default/a, Service default/single")
	f.write("b.yaml", called("b"))
	see("Service default/a, Service default/b, Service default/single")
	f.write("b.yaml.tmp", called("c"))
	if err := os.Rename(filepath.Join(f.dir, "b.yaml.tmp"), filepath.Join(f.dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	see("Service default/a, Service default/c, Service default/single")
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	see("Service default/c, Service default/single")
	for i := range 3 { // a program may repeatedly replace a file that is itself one of the paths
		tmp := filepath.Join(filepath.Dir(single), "tmp")
		if err := os.WriteFile(tmp, []byte(called(fmt.Sprintf("single-%d", i))), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, single); err != nil {
			t.Fatal(err)
		}
		see(fmt.Sprintf("Service default/c, Service default/single-%d", i))
	}
}

// In a ConfigMap volume, each file is a symbolic link to a path that contains a second link, which points to a
// directory. The kubelet replaces only the second link.
func TestSwappedSymlinkIsDetected(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "web.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", called("one"))
	if err := os.Symlink("..data/web.yaml", filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	m := run(t, dir)
	eventually(t, "the first version", 30*time.Second, func() bool { return m.names() == "Service default/one" })
	version("..2", called("two"))
	eventually(t, "the second version", watchTime, func() bool { return m.names() == "Service default/two" })
}

func TestFolderCreatedLaterIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	m := run(t, dir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(web), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Service", 2*faultyPollPeriod, func() bool { return m.names() == "Service default/web" })
}
