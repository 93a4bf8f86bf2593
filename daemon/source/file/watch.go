package file

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"edgeway/daemon/files"
)

// watcher waits for file changes. Most programs replace a file instead of writing to it, so a watcher also watches
// directories.
type watcher struct {
	paths []string
	log   *slog.Logger
	inner *files.Watcher // nil if Edgeway can only poll
}

func newWatcher(o *Options) *watcher {
	inner, err := o.NewWatcher()
	if err != nil {
		o.Logger.Warn("cannot watch the manifests, polling instead", "error", err, "period", faultyPollPeriod)
	}
	return &watcher{paths: o.Paths, log: o.Logger, inner: inner}
}

func (w *watcher) close() {
	if w.inner != nil {
		_ = w.inner.Close() // an error of Close cannot be handled
	}
}

// add watches each path and its parent directory, and reports whether all watches succeeded. Each call also watches
// directories that were created since the previous call. When an editor replaces a file, the kernel removes the watch
// on the file, but keeps the watch on the directory. Each path also needs a watch of its own, because the path may be a
// directory.
func (w *watcher) add() bool {
	if w.inner == nil {
		return false
	}
	ok := true
	for _, path := range w.paths {
		if w.inner.Add(filepath.Dir(path)) != nil || w.inner.Add(path) != nil {
			ok = false
		}
	}
	return ok
}

// wait waits up to longest for a change to the files. The result is false if ctx is done.
func (w *watcher) wait(ctx context.Context, longest time.Duration) bool {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.inner != nil {
		events, errs = w.inner.Events, w.inner.Errors
	}
	var latest time.Time // the latest time for the read, set by the first change
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case err := <-errs: // for example, the kernel's queue overflowed: any file may have changed
			w.log.Debug("manifest watch reported an error", "error", err)
			return true
		case e := <-events:
			if !w.concerns(e.Name) {
				continue
			}
			if latest.IsZero() {
				latest = time.Now().Add(maxChangeWait)
			}
			timer.Reset(min(quietTime, time.Until(latest)))
		}
	}
}

func (w *watcher) concerns(name string) bool {
	for _, path := range w.paths {
		if name == path || filepath.Dir(name) == path {
			return true
		}
	}
	return false
}
