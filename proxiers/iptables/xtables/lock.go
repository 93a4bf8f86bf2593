package xtables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lockPath is where the programs of iptables-legacy have their lock, unless the environment says
// otherwise: a change of a table reads it all and writes it all back.
const lockPath = "/run/xtables.lock"

const (
	// lockBound is how long a program waits for others.
	lockBound = 5 * time.Second
	// lockPoll is how often pass looks.
	lockPoll = 10 * time.Millisecond
)

// lock measures the time until the programs' lock is free. The program then takes it by itself: there is no
// way to hand it over.
type lock struct {
	path  string
	taken atomic.Uint64
	// waited is a time.Duration.
	waited atomic.Int64
}

func newLock() *lock { return &lock{path: cmp.Or(os.Getenv("XTABLES_LOCKFILE"), lockPath)} }

// pass takes the lock and lets it go.
func (l *lock) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockBound, errors.New("another program of iptables holds it"))
	defer cancel()
	start := time.Now()
	err := l.take(ctx)
	l.waited.Add(int64(time.Since(start)))
	if err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	l.taken.Add(1)
	return nil
}

func (l *lock) take(ctx context.Context) error {
	file, err := os.OpenFile(l.path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer file.Close()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return os.NewSyscallError("flock", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}

// waitOption has a program wait for the lock: a number of seconds, at least one.
func waitOption(ctx context.Context) string {
	bound := lockBound
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline))
	}
	return fmt.Sprintf("--wait=%d", max(1, int(bound/time.Second)))
}
