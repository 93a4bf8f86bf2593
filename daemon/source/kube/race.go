package kube

import (
	"context"
	"errors"
	"net"
	"time"
)

// contest is a list of attempts, of which the first success counts.
type contest[C, V any] struct {
	candidates []C
	// gap returns the time between the starts of attempts i-1 and i. Attempt i starts earlier if another one fails.
	gap func(i int) time.Duration
	// try makes one attempt. If it calls connected, the next attempt waits for slowPeer from then on.
	try func(ctx context.Context, c C, connected func()) (V, error)
	// discard releases the value of a success that comes too late.
	discard func(V)
}

// slowPeer is the time that a peer has before another one is tried beside it.
const slowPeer = 2 * time.Second

// outcome is that of an attempt or of a contest.
type outcome[V any] struct {
	value V
	err   error
}

var errNoAddress = errors.New("no address to try")

// first returns the first success, or the most telling error when all attempts have failed.
func (c contest[C, V]) first(ctx context.Context) (value V, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	results, connected := make(chan outcome[V]), make(chan struct{})
	isConnected := func() {
		select {
		case connected <- struct{}{}:
		case <-over:
		}
	}
	runContained := func(candidate C) {
		r := containedAttempt(func() (V, error) { return c.try(ctx, candidate, isConnected) })
		select {
		case results <- r:
		case <-over:
			if r.err == nil {
				c.discard(r.value)
			}
		}
	}
	next := time.NewTimer(0)
	defer next.Stop()
	fault := errNoAddress
	for started, running := 0, 0; started < len(c.candidates) || running > 0; {
		select {
		case <-next.C:
			if started == len(c.candidates) {
				continue
			}
			go runContained(c.candidates[started])
			started, running = started+1, running+1
			if started < len(c.candidates) {
				next.Reset(c.gap(started))
			}
		case <-connected:
			next.Reset(slowPeer)
		case r := <-results:
			if r.err == nil {
				return r.value, nil
			}
			running--
			fault = telling(fault, r.err)
			next.Reset(0)
		}
	}
	return value, fault
}

// telling returns the error that says more. An error after the connection was made says that something answered.
func telling(a, b error) error {
	var dial *net.OpError
	unanswered := func(err error) bool { return errors.As(err, &dial) && dial.Op == "dial" }
	if errors.Is(a, errNoAddress) || unanswered(a) && !unanswered(b) {
		return b
	}
	return a
}
