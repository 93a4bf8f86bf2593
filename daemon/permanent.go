package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"edgeway/daemon/sdunit"
)

// Permanent is a fault that no restart fixes: the operator must change a file.
type Permanent struct{ err error }

// Error implements error.
func (p *Permanent) Error() string { return p.err.Error() }

// Unwrap returns the fault itself.
func (p *Permanent) Unwrap() error { return p.err }

// permanent marks an error in a file's content or permissions. Other errors of system calls can pass by themselves:
// another program may still have to write the file, or a disk may come back.
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

// secondLook is the delay before a permanent fault is confirmed, because a program may just be writing the file.
const secondLook = 2 * time.Second

// loadAtStart is loadAndCheck for the start: a fault of a file counts when it is found twice, and the service manager
// waits as long as the check takes.
func loadAtStart(ctx context.Context, path string, manager *sdunit.Manager) (settings, error) {
	defer manager.ExtendStart(ctx, startTimeout)()
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
