// Package xtables runs the programs of iptables, of either variant: it finds them, reads tables by iptables-save and
// writes them by iptables-restore, and says what went wrong. It knows nothing of Services.
//
// Each run has a bound in time. Each run of an iptables-legacy program that takes the lock that all these programs
// share waits for it for a bounded time, too: without --wait 1.8.9 gives up at once, or waits for ever ("iptables -S").
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

// Tools are the programs of one variant and family. They run in the network namespace of the calling
// thread, and may be used from any goroutine.
type Tools struct {
	Variant  Variant
	Family   plan.Family
	programs programs
	// lock is used by Legacy alone.
	lock *lock
}

// Open finds the programs. The error wraps proxiers.ErrUnsupported.
func Open(ctx context.Context, v Variant, f plan.Family) (*Tools, error) {
	p, err := findPrograms(ctx, v, f)
	if err != nil {
		return nil, err
	}
	return &Tools{Variant: v, Family: f, programs: p, lock: newLock()}, nil
}

// Restore runs one input without a flush of the tables. Every table of it is changed as a whole or not at all. The
// error wraps proxiers.ErrRefused when the content is to blame.
func (t *Tools) Restore(ctx context.Context, input []byte) error {
	if t.Variant == Legacy {
		if err := t.lock.pass(ctx); err != nil {
			return err
		}
	}
	return t.restore(ctx, call{Stdin: input, Bound: tableBound})
}

// Try runs an input in a network namespace of its own. Where that is forbidden the program only checks it (--test):
// then the kernel is not asked about each rule, and iptables-legacy registers the tables. The error is as Restore's.
func (t *Tools) Try(ctx context.Context, input []byte) error {
	c := call{Stdin: input, Attr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}, Bound: tryBound}
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

// LockWait says how often Restore has taken the lock of the iptables programs, and how long it
// waited for it. Both are 0 for iptables-nft.
func (t *Tools) LockWait() (locks uint64, waited time.Duration) {
	return t.lock.taken.Load(), time.Duration(t.lock.waited.Load())
}

// Bounds of a run, where its context has none that is shorter.
const (
	// queryBound is for a program that has next to nothing to do.
	queryBound = 20 * time.Second
	// tryBound is for one that tries a few rules, which may load modules.
	tryBound = 5 * time.Minute
	// tableBound is for one that reads or writes tables, of any size.
	tableBound = 10 * time.Minute
)

type call program.Call

// run kills the program when its time is over.
func (c call) run(ctx context.Context) error {
	messages, err := program.Call(c).Run(ctx)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return c.failure(err, exit.ExitCode(), messages)
	}
	return err
}
