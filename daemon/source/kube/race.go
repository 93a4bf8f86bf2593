package kube

import (
	"context"
	"errors"
	"net"
	"time"
)

// race is a list of attempts that start one after the other, of which the first success counts.
type race[C, V any] struct {
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

// outcome is that of an attempt or of a race.
type outcome[V any] struct {
	value V
	err   error
}

var errNoAddress = errors.New("no address to try")

// first returns the first success, or the most telling error when all attempts have failed.
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

// telling returns the error that says more. An error after the connection was made says that something answered.
func telling(a, b error) error {
	var dial *net.OpError
	unanswered := func(err error) bool { return errors.As(err, &dial) && dial.Op == "dial" }
	if errors.Is(a, errNoAddress) || unanswered(a) && !unanswered(b) {
		return b
	}
	return a
}
