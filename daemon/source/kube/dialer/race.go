package dialer

import (
	"context"
	"errors"
	"net"
	"time"

	"edgeway/proxiers/contain"
)

// race tries candidates one after another, but starts the next attempt in parallel if an attempt is slow. The first
// success ends the race.
type race[C, V any] struct {
	candidates []C
	// gap returns the delay from the start of attempt i-1 to the start of attempt i. If any attempt fails, the next
	// attempt starts immediately.
	gap func(i int) time.Duration
	// try makes one attempt. After a call to connected, the race waits slowPeerTime before it starts the next attempt.
	try func(ctx context.Context, c C, connected func()) (V, error)
	// discard releases the value of an attempt that succeeds after the race has ended.
	discard func(V)
}

// slowPeerTime is the time that a race waits for a slow peer before starting the next attempt in parallel.
const slowPeerTime = 2 * time.Second

type outcome[V any] struct {
	value V
	err   error
}

func containedAttempt[V any](f func() (V, error)) (r outcome[V]) {
	r.err = contain.Call(func() (err error) {
		r.value, err = f()
		return err
	})
	return r
}

var errNoAddress = errors.New("no address to try")

// firstSuccess returns the value of the first success, or the most informative error if all attempts fail.
func (r race[C, V]) firstSuccess(ctx context.Context) (value V, err error) {
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
			next.Reset(slowPeerTime)
		case o := <-results:
			if o.err == nil {
				return o.value, nil
			}
			running--
			fault = selectError(fault, o.err)
			next.Reset(0)
		}
	}
	return value, fault
}

// selectError returns the more informative of two errors. An error on an established connection is more informative
// than a failed dial.
func selectError(a, b error) error {
	var dial *net.OpError
	unanswered := func(err error) bool { return errors.As(err, &dial) && dial.Op == "dial" }
	if errors.Is(a, errNoAddress) || unanswered(a) && !unanswered(b) {
		return b
	}
	return a
}
