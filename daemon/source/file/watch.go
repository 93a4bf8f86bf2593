package file

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"edgeway/daemon/files"
)

// watcher waits for changes of files. Folders are watched, not files: files are mostly replaced.
type watcher struct {
	paths []string
	log   *slog.Logger
	inner *files.Watcher // nil: only the poll is left
}

func newWatcher(paths []string, inotify func() (*files.Watcher, error), log *slog.Logger) *watcher {
	inner, err := inotify()
	if err != nil {
		log.Warn("manifests cannot be watched and are polled", "error", err, "period", faultyPoll)
	}
	return &watcher{paths: paths, log: log, inner: inner}
}

func (w *watcher) close() {
	if w.inner != nil {
		_ = w.inner.Close() // nothing to be done about it
	}
}

// add watches the paths and the folders that they are in, also those that have come into being since
// the last call. It reports whether all are watched. A file's own watch fails with some editors'
// replacements and adds nothing to its folder's, but the path may be a folder: so both are watched.
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

// wait returns true when the files shall be read: after a change, or when the time is over.
func (w *watcher) wait(ctx context.Context, longest time.Duration) bool {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.inner != nil {
		events, errs = w.inner.Events, w.inner.Errors
	}
	var latest time.Time // when to read at the latest, once there was a change
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case err := <-errs: // as after an overflow of the kernel's queue: anything may have changed
			w.log.Debug("watch of manifests reported a fault", "error", err)
			return true
		case e := <-events:
			if !w.concerns(e.Name) {
				continue
			}
			if latest.IsZero() {
				latest = time.Now().Add(settle)
			}
			timer.Reset(min(quiet, time.Until(latest)))
		}
	}
}

// concerns leaves out the neighbours of the paths.
func (w *watcher) concerns(name string) bool {
	for _, path := range w.paths {
		if name == path || filepath.Dir(name) == path {
			return true
		}
	}
	return false
}
