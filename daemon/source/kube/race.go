package kube

import (
	"context"
	"errors"
	"net"
	"time"
)

// race is a list of attempts that start one after another. The first success ends the race.
type race[C, V any] struct {
	candidates []C
	// gap returns the time between the starts of attempts i-1 and i. Attempt i starts earlier if another attempt
	// fails.
	gap func(i int) time.Duration
	// try makes one attempt. When try calls connected, the next attempt is delayed by slowPeer from then on.
	try func(ctx context.Context, c C, connected func()) (V, error)
	// discard releases the value of an attempt that succeeds too late.
	discard func(V)
}

// slowPeer is the time after which another peer is tried in parallel.
const slowPeer = 2 * time.Second

// outcome is the result of an attempt or of a race.
type outcome[V any] struct {
	value V
	err   error
}

var errNoAddress = errors.New("no address to try")

// first returns the value of the first success, or the most informative error if all attempts fail.
func (r race[C, V]) first(ctx context.Context) (value V, err error) {
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
		o := containedAttempt(func() (V, error) { return r.try(ctx, candidate, isConnected) })
		select {
		case results <- o:
		case <-over:
			if o.err == nil {
				r.discard(o.value)
			}
		}
	}
	next := time.NewTimer(0)
	defer next.Stop()
	fault := errNoAddress
	for started, running := 0, 0; started < len(r.candidates) || running > 0; {
		select {
		case <-next.C:
			if started == len(r.candidates) {
				continue
			}
			go runContained(r.candidates[started])
			started, running = started+1, running+1
			if started < len(r.candidates) {
				next.Reset(r.gap(started))
			}
		case <-connected:
			next.Reset(slowPeer)
		case o := <-results:
			if o.err == nil {
				return o.value, nil
			}
			running--
			fault = telling(fault, o.err)
			next.Reset(0)
		}
	}
	return value, fault
}

// telling returns the more informative of two errors. An error on an established connection shows that a peer
// answered.
func telling(a, b error) error {
	var dial *net.OpError
	unanswered := func(err error) bool { return errors.As(err, &dial) && dial.Op == "dial" }
	if errors.Is(a, errNoAddress) || unanswered(a) && !unanswered(b) {
		return b
	}
	return a
}
