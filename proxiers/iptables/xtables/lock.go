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

const (
	// lockPath is the default path of the lock file that the iptables-legacy programs share. The programs need a lock,
	// because each program reads a whole table, changes it, and writes it back.
	lockPath = "/run/xtables.lock"
	// lockBound is the maximum time that a program waits for the lock.
	lockBound = 5 * time.Second
	// lockInterval is the time between two attempts to acquire the lock.
	lockInterval = 10 * time.Millisecond
)

// lock waits until the programs' lock is free, and measures the waiting time. An iptables program then acquires the
// lock itself, because Edgeway cannot pass the lock to the program.
type lock struct {
	path  string
	taken atomic.Uint64
	// waitTime is the total waiting time, as a time.Duration.
	waitTime atomic.Int64
}

func newLock() *lock { return &lock{path: cmp.Or(os.Getenv("XTABLES_LOCKFILE"), lockPath)} }

// waitUntilFree waits for the lock, acquires it, and immediately releases it.
func (l *lock) waitUntilFree(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockBound, errors.New("another iptables program holds the lock"))
	defer cancel()
	start := time.Now()
	err := l.take(ctx)
	l.waitTime.Add(int64(time.Since(start)))
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
		case <-time.After(lockInterval):
		}
	}
}

// waitOption returns the option that limits how long a program waits for the lock. The limit is at least one second.
func waitOption(ctx context.Context) string {
	bound := lockBound
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline))
	}
	return fmt.Sprintf("--wait=%d", max(1, int(bound/time.Second)))
}
