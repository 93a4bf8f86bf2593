package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Permanent is a fault that no restart mends: somebody has to change a file.
type Permanent struct{ err error }

// Error implements error.
func (p *Permanent) Error() string { return p.err.Error() }

// Unwrap gives the fault itself.
func (p *Permanent) Unwrap() error { return p.err }

// permanent marks an error of a file's content, or of its permissions. What the system calls alone refuse may be mended
// by time: a file that another program has yet to write, or a disk.
func permanent(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok && !errors.Is(errno, fs.ErrPermission) {
		return err
	}
	return &Permanent{err}
}

// webConfigError is an error of metrics.web_config.
func webConfigError(path string, err error) error {
	return permanent(fmt.Errorf("metrics.web_config: %s: %w", path, err))
}

// secondLook is when a permanent fault is looked at again. A program may just have been writing the file.
const secondLook = 2 * time.Second

// loadAtStart is loadAndCheck for the start, where a fault of a file counts when it is there twice.
func loadAtStart(ctx context.Context, path string) (settings, error) {
	set, err := loadAndCheck(ctx, path)
	if _, ok := errors.AsType[*Permanent](err); !ok {
		return set, err
	}
	select {
	case <-ctx.Done():
		return set, err
	case <-time.After(secondLook):
		return loadAndCheck(ctx, path)
	}
}
