package kube

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// pace limits the rate of requests. The first request starts immediately. Each further request waits until a gap has
// passed since the previous request. The gap doubles with every request, up to max, and returns to min after quietTime
// without requests.
type pace struct {
	min, max time.Duration

	mu   sync.Mutex
	gap  time.Duration
	last time.Time // the start of the latest request, which may be in the future
	next time.Time // the earliest time of the next request
}

// quietTime is the time without requests after which a pace resets its gap to min.
const quietTime = 2 * time.Minute

// wait returns when the next request may start, or when ctx is done.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now()
	start := now
	if p.next.After(now) {
		start = p.next
	}
	if p.gap == 0 || start.Sub(p.last) > quietTime {
		p.gap = p.min
	}
	p.last = start
	p.next = start.Add(p.gap + time.Duration(rand.Float64()*0.5*float64(p.gap)))
	p.gap = min(2*p.gap, p.max)
	p.mu.Unlock()

	return sleep(ctx, start.Sub(now))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// delay postpones all requests by d plus a random time up to spread, so that hosts whose requests fail at the same
// moment do not all retry at once.
func (p *pace) delay(d, spread time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := time.Now().Add(d + rand.N(spread)); at.After(p.next) {
		p.next = at
	}
}

func (p *pace) ease() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gap = p.min
	p.next = p.last.Add(p.min)
}
