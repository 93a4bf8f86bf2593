package endpointcheck

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
)

const (
	// maxRate is the maximum number of checks per second. Each check uses CPU time, and occupies a connection-tracking
	// entry for ten seconds.
	maxRate = 1000
	// maxBurst is the maximum number of checks that start together if the timer fires late.
	maxBurst = maxRate / 50
	// maxInFlight is the maximum number of checks that wait for a response at the same time.
	maxInFlight = 256
	// publishPause is the minimum time between two changes to the list of dead endpoints. Each change triggers a sync,
	// and the endpoints of a failed network do not all fail at the same moment.
	publishPause = 100 * time.Millisecond
)

// Checker checks endpoints. Any goroutine may call a Checker's methods, but none may call Configure during Run.
type Checker struct {
	lines          ChangeLogger
	dial           dialFunc // Configure and tests set dial
	settings       Settings
	changed, wake  chan struct{}
	dead           atomic.Pointer[DeadEndpoints]
	passed, failed atomic.Uint64

	mu        sync.Mutex
	targets   map[netip.AddrPort]*target
	queue     []*target // queue is in the order of the next checks; Run removes dropped targets
	faults    map[netip.AddrPort]fault.Fault
	published time.Time
	pending   bool // a publication is scheduled
}

type target struct {
	addr netip.AddrPort
	// inFlight reports whether a check is waiting for a response.
	inFlight bool
	// dead is the current verdict on the target. contradictions counts the most recent consecutive results that
	// contradict the verdict. since is the start time of the check that returned the first of these results.
	dead           bool
	contradictions int
	since          time.Time
}

// ChangeLogger logs state changes by key, and may omit some changes. journal.Damper implements ChangeLogger.
type ChangeLogger interface {
	Log(key string, level slog.Level, id, message string, attrs ...any)
}

// New returns a Checker without targets. New starts no goroutine.
func New(lines ChangeLogger) *Checker {
	c := &Checker{lines: lines, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	c.Forget()
	return c
}

// Configure applies the settings to the next Run. The Checker keeps its verdicts.
func (c *Checker) Configure(s Settings) {
	c.settings, c.dial = s, connector(s.Mark)
}

// Forget drops all targets and verdicts.
func (c *Checker) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.targets, c.queue, c.faults = map[netip.AddrPort]*target{}, nil, map[netip.AddrPort]fault.Fault{}
	c.dead.Store(nil)
}

// UpdateTargets changes the targets. The Checker considers a new endpoint alive until its checks fail.
func (c *Checker) UpdateTargets(t Targets) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.All {
		wanted := make(map[netip.AddrPort]bool, len(t.Add))
		for _, a := range t.Add {
			wanted[a] = true
		}
		for a := range c.targets {
			if !wanted[a] {
				t.Drop = append(t.Drop, a)
			}
		}
	}
	for _, a := range t.Drop {
		delete(c.targets, a)
		if _, dead := c.faults[a]; dead {
			delete(c.faults, a)
			c.publish()
		}
	}
	for _, a := range t.Add {
		if c.targets[a] == nil {
			c.targets[a] = &target{addr: a}
			c.queue = append(c.queue, c.targets[a])
			// Insert the target at a random position, so that the checks of different endpoints and hosts do not
			// synchronize.
			last, place := len(c.queue)-1, rand.IntN(len(c.queue))
			c.queue[last], c.queue[place] = c.queue[place], c.queue[last]
		}
	}
	notify(c.wake)
}

// DeadEndpoints returns the dead endpoints, or nil if all endpoints respond.
func (c *Checker) DeadEndpoints() *DeadEndpoints { return c.dead.Load() }

// CountEndpoints returns the number of targets.
func (c *Checker) CountEndpoints() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.targets)
}

// Changed returns a channel that receives a value after the list of dead endpoints has changed. A single value may
// stand for several changes.
func (c *Checker) Changed() <-chan struct{} { return c.changed }

// Run checks the targets until ctx is done, and returns nil.
func (c *Checker) Run(ctx context.Context) error {
	var flights sync.WaitGroup
	defer flights.Wait()
	free, panicked := make(chan struct{}, maxInFlight), make(chan error, maxInFlight)
	pace := rate.NewLimiter(0, 0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.adjust(pace)
		turn := pace.Reserve()
		timer.Reset(min(turn.Delay(), time.Hour))
		select {
		case <-ctx.Done():
			return nil
		case err := <-panicked:
			contain.Rethrow(err)
		case <-c.wake: // the rate may have changed
			turn.Cancel()
			continue
		case <-timer.C:
		}
		t := c.next()
		if t == nil {
			continue
		}
		select {
		case <-ctx.Done():
			c.land(t)
			return nil
		case free <- struct{}{}:
		}
		flights.Go(func() {
			r := result{unclear: true}
			err := contain.Call(func() error {
				r = c.check(ctx, t.addr)
				return nil
			})
			c.updateVerdict(t, r)
			if err != nil {
				panicked <- err
			}
			<-free
		})
	}
}

// adjust sets a rate at which the Checker checks each target slightly more often than once per interval.
func (c *Checker) adjust(pace *rate.Limiter) {
	limit := min(1.05*float64(c.CountEndpoints())/c.settings.Interval.Seconds(), maxRate)
	pace.SetLimit(rate.Limit(limit))
	pace.SetBurst(max(1, int(limit/maxRate*maxBurst)))
}

// next returns the target to check next, or nil if there is no target or if the previous check of the next target is
// still running.
func (c *Checker) next() *target {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		t := c.queue[0]
		c.queue = c.queue[1:]
		if c.targets[t.addr] != t {
			continue
		}
		c.queue = append(c.queue, t)
		if t.inFlight {
			return nil
		}
		t.inFlight = true
		return t
	}
	return nil
}

func (c *Checker) land(t *target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.inFlight = false
}

// publish schedules an update of the list of dead endpoints, at most one per publishPause. The caller must hold mu.
func (c *Checker) publish() {
	if c.pending {
		return
	}
	c.pending = true
	time.AfterFunc(publishPause-time.Since(c.published), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pending, c.published = false, time.Now()
		c.dead.Store(&DeadEndpoints{Faults: maps.Clone(c.faults)})
		notify(c.changed)
	})
}

func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// updateVerdict updates a target's verdict from the result of a check.
func (c *Checker) updateVerdict(t *target, r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.inFlight = false
	if c.targets[t.addr] != t || r.unclear {
		return
	}
	failed, need := r.fault != "", c.settings.Failures
	if failed {
		c.failed.Add(1)
	} else {
		c.passed.Add(1)
	}
	if failed == t.dead {
		t.contradictions = 0
		return
	}
	if t.dead {
		need = minPasses
	}
	if t.contradictions == 0 {
		t.since = r.began
	}
	if t.contradictions++; t.contradictions < need {
		return
	}
	t.dead, t.contradictions = failed, 0
	c.logChange(t, r.fault)
	if t.dead {
		c.faults[t.addr] = fault.Fault{Since: t.since, Message: r.fault}
	} else {
		delete(c.faults, t.addr)
	}
	c.publish()
}
