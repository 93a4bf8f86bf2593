// Package files reads files that another user may have replaced. A pipe, a device or an endless file in /proc can
// neither block the reader nor exhaust its memory. Package files also watches directories.
package files

import "github.com/fsnotify/fsnotify"

// Watcher reports changes in directories. Tests can construct a Watcher without inotify(7), which does not work in a
// testing/synctest bubble.
type Watcher struct {
	Events <-chan fsnotify.Event
	// Errors receives an error when the kernel has dropped events. After an error, any file may have changed.
	Errors <-chan error
	// Add watches a file, or a directory and the files in it.
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
