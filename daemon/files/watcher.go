// Package files reads files that somebody else may have put in place: a pipe, a device, or a file of /proc without an
// end neither stops the reader nor fills the memory. It also watches folders.
package files

import "github.com/fsnotify/fsnotify"

// Watcher reports changes in folders. A test can make one of its own: the kernel's events do not pass into a bubble of
// testing/synctest.
type Watcher struct {
	Events <-chan fsnotify.Event
	// Errors reports lost events, so that anything may have changed.
	Errors <-chan error
	// Add watches a file, or a folder and the files in it.
	Add   func(path string) error
	Close func() error
}

// NewWatcher returns a Watcher that uses inotify(7).
func NewWatcher() (*Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &Watcher{Events: w.Events, Errors: w.Errors, Add: w.Add, Close: w.Close}, nil
}
