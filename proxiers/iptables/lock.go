package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lockPath is where the programs of iptables-legacy have their lock, unless the environment says
// otherwise: a change of a table reads it all and writes it all back.
const lockPath = "/run/xtables.lock"

const (
	// lockBound is how long a restore waits for others.
	lockBound = 5 * time.Second
	// lockPoll is how often it looks.
	lockPoll = 10 * time.Millisecond
)

// lock measures the time until the programs' lock is free. The program takes it then by itself: there is no
// way to hand it over.
type lock struct {
	path string

	mu     sync.Mutex
	taken  uint64
	waited time.Duration
}

func newLock() *lock {
	if path := os.Getenv("XTABLES_LOCKFILE"); path != "" {
		return &lock{path: path}
	}
	return &lock{path: lockPath}
}

// pass takes the lock and lets it go.
func (l *lock) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockBound, errors.New("another program of iptables holds it"))
	defer cancel()
	start := time.Now()
	err := l.take(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited += time.Since(start)
	if err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	l.taken++
	return nil
}

func (l *lock) take(ctx context.Context) error {
	file, err := os.OpenFile(l.path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer file.Close()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return os.NewSyscallError("flock", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// wait is the option by which a program waits, in seconds, at least one.
func (l *lock) wait(ctx context.Context) string {
	bound := lockBound
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline))
	}
	return fmt.Sprintf("--wait=%d", max(1, int(bound/time.Second)))
}

func (l *lock) stats() (taken uint64, waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, l.waited
}
