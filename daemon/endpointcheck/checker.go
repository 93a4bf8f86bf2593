package endpointcheck

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"edgeway/proxiers/contain"
)

const (
	// maxRate bounds the checks of a second: each takes CPU, and for ten seconds an entry of the connection-tracking table.
	maxRate = 1000
	// maxBurst is how many checks begin together; the next ones wait until the rate is kept.
	maxBurst = maxRate / 50
	// maxFlying bounds the checks that wait for an answer at a time.
	maxFlying = 256
	// publishPause is the least time between two changes of Dead, each of which is a sync: when a network goes, its
	// endpoints die in many moments.
	publishPause = 100 * time.Millisecond
)

// Checker checks endpoints. Its methods may be called from any goroutine, but Use only while none is in Run.
type Checker struct {
	log *slog.Logger
	// dial makes and ends a connection. Use sets it; tests have their own.
	dial    dialFunc
	changed chan struct{}
	wake    chan struct{}
	dead    atomic.Pointer[Dead]
	counts  counts

	mu    sync.Mutex
	edits []Targets // that Run has not seen

	// The rest is of the goroutine that runs.
	settings Settings
	targets  map[netip.AddrPort]*target
	queue    queue
	flying   int
	free     time.Time                // until when no check begins
	faults   map[netip.AddrPort]Fault // of the dead; published by publish
	stale    bool                     // something differs from what is published
	quiet    time.Time                // until when nothing is published
	lines    damper
}

// New makes a Checker that checks nothing. It starts no goroutine.
func New(logger *slog.Logger) *Checker {
	c := &Checker{log: logger, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	c.Forget()
	return c
}

// Use sets what the next Run does. What is known of endpoints stays.
func (c *Checker) Use(s Settings) {
	c.settings, c.dial = s, connector(s.Mark)
}

// Forget is Use of no checks: all that is known is gone.
func (c *Checker) Forget() {
	c.mu.Lock()
	c.edits = nil
	c.mu.Unlock()
	c.targets, c.queue, c.faults = map[netip.AddrPort]*target{}, nil, map[netip.AddrPort]Fault{}
	c.counts.targets.Store(0)
	c.dead.Store(nil)
}

// Follow says what to check. A new endpoint is alive until it has failed.
func (c *Checker) Follow(t Targets) {
	if !t.All && len(t.Add)+len(t.Drop) == 0 {
		return
	}
	c.mu.Lock()
	c.edits = append(c.edits, t)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Dead gives those that do not answer now; nil: none.
func (c *Checker) Dead() *Dead { return c.dead.Load() }

// Endpoints is how many are checked.
func (c *Checker) Endpoints() int { return int(c.counts.targets.Load()) }

// Changed receives after Dead became another one. Many changes may be announced at once.
func (c *Checker) Changed() <-chan struct{} { return c.changed }

// Run checks until ctx ends; it returns nil.
func (c *Checker) Run(ctx context.Context) error {
	results := make(chan result, maxFlying)
	var flights sync.WaitGroup
	defer flights.Wait()
	c.restart()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			c.edit()
		case r := <-results:
			c.flying--
			contain.Rethrow(r.panicked)
			c.take(r)
		case <-timer.C:
		}
		now := time.Now()
		for _, t := range c.burst(now) {
			flights.Go(func() {
				r := result{target: t, began: now, unclear: true}
				r.panicked = contain.Call(func() error {
					r = c.check(ctx, t)
					return nil
				})
				results <- r
			})
		}
		c.publish(now)
		c.lines.flush(c.log, now)
		timer.Reset(c.next(now))
	}
}

// restart puts all targets into the queue: those that were on their way when the Run before ended too.
func (c *Checker) restart() {
	c.queue, c.flying, c.quiet = nil, 0, time.Time{}
	for _, t := range c.targets {
		c.enqueue(t, time.Now().Add(c.phase()))
	}
	c.edit()
}

// edit does what Follow asked for.
func (c *Checker) edit() {
	c.mu.Lock()
	edits := c.edits
	c.edits = nil
	c.mu.Unlock()
	for _, e := range edits {
		c.follow(e)
	}
	c.counts.targets.Store(int64(len(c.targets)))
}

func (c *Checker) follow(e Targets) {
	if e.All {
		wanted := make(map[netip.AddrPort]struct{}, len(e.Add))
		for _, a := range e.Add {
			wanted[a] = struct{}{}
		}
		for a := range c.targets {
			if _, still := wanted[a]; !still {
				e.Drop = append(e.Drop, a)
			}
		}
	}
	for _, a := range e.Drop {
		if t := c.targets[a]; t != nil {
			c.drop(t)
		}
	}
	now := time.Now()
	for _, a := range e.Add {
		if c.targets[a] == nil {
			t := &target{addr: a}
			c.targets[a] = t
			c.enqueue(t, now.Add(c.phase()))
		}
	}
}

// publish makes known who is dead: at once after a quiet time, and else after a pause.
func (c *Checker) publish(now time.Time) {
	if !c.stale || now.Before(c.quiet) {
		return
	}
	c.stale, c.quiet = false, now.Add(publishPause)
	c.dead.Store(&Dead{Faults: maps.Clone(c.faults)})
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// idle is how long there is nothing to do without endpoints.
const idle = time.Hour

// next is the time until there is something to do, results and calls of Follow aside.
func (c *Checker) next(now time.Time) time.Duration {
	wait := idle
	if len(c.queue) > 0 && c.flying < maxFlying {
		wait = max(c.queue[0].due.Sub(now), c.free.Sub(now))
	}
	if c.stale {
		wait = min(wait, c.quiet.Sub(now))
	}
	if c.lines.more > 0 {
		wait = min(wait, c.lines.end.Sub(now))
	}
	return max(0, wait)
}
