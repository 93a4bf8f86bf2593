// Package xtables runs the iptables programs of either variant. The package finds the programs, reads tables with
// iptables-save, writes tables with iptables-restore, and describes errors.
//
// Each run of a program has a time limit. The iptables-legacy programs share a lock, and Edgeway limits how long a
// program waits for the lock. If the lock is taken, iptables-legacy 1.8.9 without --wait either fails immediately or
// waits forever, as "iptables -S" does.
package xtables

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/program"
	"edgeway/proxiers/plan"
)

// Tools represents the programs of one variant and family. The programs run in the calling thread's network namespace.
// Tools is safe for concurrent use.
type Tools struct {
	Variant  Variant
	Family   plan.Family
	programs programs
	// Only the Legacy variant uses the lock.
	lock *lock
}

// Open finds the programs. An error that is not transient wraps proxiers.ErrUnsupported.
func Open(ctx context.Context, v Variant, f plan.Family) (*Tools, error) {
	p, err := findPrograms(ctx, v, f)
	if err != nil {
		return nil, err
	}
	return &Tools{Variant: v, Family: f, programs: p, lock: newLock()}, nil
}

// Restore applies an input with iptables-restore --noflush. Each table changes atomically. If the program or the kernel
// rejects the input, the error wraps proxiers.ErrRefused.
func (t *Tools) Restore(ctx context.Context, input []byte) error {
	if t.Variant == Legacy {
		if err := t.lock.waitUntilFree(ctx); err != nil {
			return err
		}
	}
	return t.restore(ctx, call{Stdin: input, Timeout: tableBound})
}

// Try applies an input in a new network namespace. If the process may not create a namespace, iptables-restore only
// validates the input (--test). With --test, the kernel does not validate every rule, and iptables-legacy registers the
// tables. Try returns the same errors as Restore.
func (t *Tools) Try(ctx context.Context, input []byte) error {
	c := call{Stdin: input, Attr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}, Timeout: tryBound}
	err := t.restore(ctx, c)
	if errors.Is(err, unix.EPERM) {
		c.Attr, c.Args = nil, []string{"--test"}
		err = t.restore(ctx, c)
	}
	return err
}

func (t *Tools) restore(ctx context.Context, c call) error {
	c.Path, c.Args = t.programs.restore, append(c.Args, "--noflush")
	if t.Variant == Legacy {
		c.Args = append(c.Args, waitOption(ctx))
	}
	return c.run(ctx)
}

// LockWait returns the number of times that Restore acquired the iptables-legacy programs' lock, and the total waiting
// time. For iptables-nft, LockWait returns 0 and 0.
func (t *Tools) LockWait() (locks uint64, waited time.Duration) {
	return t.lock.taken.Load(), time.Duration(t.lock.waitTime.Load())
}

// The time limit of a program is one of the following, unless the context has an earlier deadline.
const (
	// queryBound applies to a program that only prints its version.
	queryBound = 20 * time.Second
	// tryBound applies to a program that tries a few rules. The kernel may have to load modules for the rules.
	tryBound = 5 * time.Minute
	// tableBound applies to a program that reads or writes tables of any size.
	tableBound = 10 * time.Minute
)

type call program.Call

// run runs the program, and kills it when the time limit expires.
func (c call) run(ctx context.Context) error {
	messages, err := program.Call(c).Run(ctx)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return c.failure(err, exit.ExitCode(), messages)
	}
	return err
}
