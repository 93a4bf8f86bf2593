package program

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"syscall"
)

// Transient reports whether a run failed for a reason that may be gone at the next run: it took too long, the kernel
// had no process, memory or descriptor for it, or killed it for want of memory. Such a failure says nothing about what
// the host supports.
func Transient(err error) bool {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, ok := exit.Sys().(syscall.WaitStatus)
		return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains([]syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}, errno)
}
