package file

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/daemon/files"
	"edgeway/proxiers/contain"
)

// After a panic, the next Run reads the files that have changed since the panic, and removes the objects that no longer
// exist.
func TestRunAfterPanic(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(called(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	write("b")
	sink, watchers := newMemory(), 0
	s := New(Options{
		Paths: []string{dir}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		NewWatcher: func() (*files.Watcher, error) {
			if watchers++; watchers == 2 {
				panic("on purpose")
			}
			return files.NewWatcher()
		},
	})
	run := func(want string) error {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- contain.Call(func() error { return s.Run(ctx, sink) }) }()
		if want != "" {
			eventually(t, want, 30*time.Second, func() bool {
				var has string
				for _, name := range []string{"a", "b", "c"} {
					if sink.service(name) != nil {
						has += name
					}
				}
				return has == want
			})
			cancel()
		}
		err := <-done
		cancel()
		return err
	}
	if err := run("ab"); err != nil {
		t.Fatal(err)
	}
	if err := run(""); !contain.IsPanic(err) {
		t.Fatalf("the second Run ends with %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	write("c")
	if err := run("bc"); err != nil {
		t.Fatal(err)
	}
}

// A panic in the goroutine that reads the files ends Run, so that the daemon can restart the source. The panic does not
// end the process.
func TestPanicDuringReadEndsRun(t *testing.T) {
	dir := t.TempDir()
	var adds atomic.Int32
	s := New(Options{
		Paths: []string{dir}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		NewWatcher: func() (*files.Watcher, error) {
			return &files.Watcher{Close: func() error { return nil }, Add: func(string) error {
				adds.Add(1)
				panic("on purpose")
			}}, nil
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := contain.Call(func() error { return s.Run(ctx, newMemory()) })
	if !contain.IsPanic(err) || adds.Load() != 1 {
		t.Errorf("after %d calls, Run ends with %v", adds.Load(), err)
	}
}

// If a document causes a panic, the document's fault names the file and the line, and the source serves the objects of
// all other documents.
func TestDocumentThatPanicsIsReported(t *testing.T) {
	f := newManifestDir(t)
	f.src.ignored = nil // a write to the nil map panics
	f.write("a.yaml", called("a")+"---\n{apiVersion: apps/v1, kind: Deployment}\n---\n"+called("c"))
	f.write("b.yaml", called("b"))
	f.expect("Service default/a, Service default/b, Service default/c", "a.yaml:7: cannot be read: panic at ")
}
