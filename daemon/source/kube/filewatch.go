package kube

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"edgeway/daemon/files"
)

// fileWatch waits for changes of files. Their folders are watched: files are mostly replaced, and in a volume of
// Kubernetes it is a link beside them that is.
type fileWatch struct {
	log   *slog.Logger
	inner *files.Watcher // nil: only the poll is left
	paths []watchedPath
}

// watchedPath is a file's path in its real folder, and what it is after all links.
type watchedPath struct{ named, real string }

func newFileWatch(inotify func() (*files.Watcher, error), log *slog.Logger) *fileWatch {
	inner, err := inotify()
	if err != nil {
		log.Warn("kubeconfig cannot be watched and is polled", "error", err, "period", credentialPoll)
	}
	return &fileWatch{log: log, inner: inner}
}

func (w *fileWatch) close() {
	if w.inner != nil {
		_ = w.inner.Close() // nothing to be done about it
	}
}

// add watches these files, also those that are not there yet. What cannot be watched is left to the poll.
func (w *fileWatch) add(files []file) {
	w.paths = w.paths[:0]
	for _, f := range files {
		folder, err := filepath.EvalSymlinks(filepath.Dir(f.path))
		if err != nil {
			continue
		}
		p := watchedPath{named: filepath.Join(folder, filepath.Base(f.path))}
		if p.real, err = filepath.EvalSymlinks(f.path); err != nil {
			p.real = p.named
		}
		w.paths = append(w.paths, p)
		if w.inner != nil {
			_ = w.inner.Add(folder)
			_ = w.inner.Add(filepath.Dir(p.real))
		}
	}
}

func (w *fileWatch) concerns(e fsnotify.Event) bool {
	for _, p := range w.paths {
		switch {
		case e.Name == p.named, e.Name == p.real:
			return true
		case p.named != p.real && !e.Has(fsnotify.Write) && filepath.Dir(e.Name) == filepath.Dir(p.named):
			return true
		}
	}
	return false
}

// Changes are waited for until there were none for quiet, settle at most. Also the least time between two readings.
const (
	credentialQuiet  = 100 * time.Millisecond
	credentialSettle = time.Second
)

// wait returns true when the files shall be read: after a change, a mark in refused, or when the time is over.
func (w *fileWatch) wait(ctx context.Context, longest time.Duration, refused <-chan struct{}) bool {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.inner != nil {
		events, errs = w.inner.Events, w.inner.Errors
	}
	began := time.Now()
	var latest time.Time // when to read at the latest, once there was a change
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case err := <-errs: // as after an overflow of the kernel's queue: anything may have changed
			w.log.Debug("watch of the kubeconfig reported a fault", "error", err)
			return true
		case <-refused:
			timer.Reset(min(longest, max(0, time.Until(began.Add(credentialSettle)))))
		case e := <-events:
			if !w.concerns(e) {
				continue
			}
			if latest.IsZero() {
				latest = time.Now().Add(credentialSettle)
			}
			timer.Reset(min(credentialQuiet, time.Until(latest)))
		}
	}
}
