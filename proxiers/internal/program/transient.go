package program

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"syscall"
)

// Transient reports whether a run failed for a temporary reason: a timeout, a shortage of processes, memory or
// descriptors, or the kernel's OOM killer. A temporary failure does not show whether the host supports a feature.
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
