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
	// maxRate bounds the checks per second. Each takes CPU, and an entry of the connection-tracking table for ten
	// seconds.
	maxRate = 1000
	// maxBurst bounds the checks that begin together when the timer fires late.
	maxBurst = maxRate / 50
	// maxFlying bounds the checks that wait for an answer.
	maxFlying = 256
	// publishPause is the least time between two changes of Dead. Each change is a sync, and when a network fails, its
	// endpoints die over a while.
	publishPause = 100 * time.Millisecond
)

// Checker checks endpoints. Its methods may be called from any goroutine, but Use only while Run does not run.
type Checker struct {
	lines          Lines
	dial           dialFunc // set by Use, and by tests
	settings       Settings
	changed, wake  chan struct{}
	dead           atomic.Pointer[Dead]
	passed, failed atomic.Uint64

	mu        sync.Mutex
	targets   map[netip.AddrPort]*target
	queue     []*target // in the order of their next checks; also holds dropped ones, which Run removes
	faults    map[netip.AddrPort]fault.Fault
	published time.Time
	pending   bool // a publication is scheduled
}

// target is an endpoint that is checked.
type target struct {
	addr netip.AddrPort
	// flying is set while a check waits for the answer.
	flying bool
	// dead is the verdict. against counts the last results in a row that contradict it, and since is the start of the
	// first of them.
	dead    bool
	against int
	since   time.Time
}

// Lines writes lines about changes of a thing, the key, and leaves out some if there are many: a journal.Damper.
type Lines interface {
	Log(key string, level slog.Level, id, message string, attrs ...any)
}

// New returns a Checker without targets. It starts no goroutine.
func New(lines Lines) *Checker {
	c := &Checker{lines: lines, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	c.Forget()
	return c
}

// Use sets what the next Run does. The Checker keeps what it knows of endpoints.
func (c *Checker) Use(s Settings) {
	c.settings, c.dial = s, connector(s.Mark)
}

// Forget drops all targets and verdicts.
func (c *Checker) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.targets, c.queue, c.faults = map[netip.AddrPort]*target{}, nil, map[netip.AddrPort]fault.Fault{}
	c.dead.Store(nil)
}

// Follow changes the targets. A new endpoint is alive until it has failed.
func (c *Checker) Follow(t Targets) {
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
			// A random place, so that the checks of endpoints, and of hosts, do not fall into step.
			last, place := len(c.queue)-1, rand.IntN(len(c.queue))
			c.queue[last], c.queue[place] = c.queue[place], c.queue[last]
		}
	}
	notify(c.wake)
}

// Dead returns the endpoints that do not answer, or nil if all do.
func (c *Checker) Dead() *Dead { return c.dead.Load() }

// Endpoints returns the number of targets.
func (c *Checker) Endpoints() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.targets)
}

// Changed receives after Dead has changed, once for several changes.
func (c *Checker) Changed() <-chan struct{} { return c.changed }

// Run checks until ctx ends and returns nil.
func (c *Checker) Run(ctx context.Context) error {
	var flights sync.WaitGroup
	defer flights.Wait()
	free, panicked := make(chan struct{}, maxFlying), make(chan error, maxFlying)
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
		case <-c.wake: // the pace changes
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
			c.take(t, r)
			if err != nil {
				panicked <- err
			}
			<-free
		})
	}
}

// adjust sets a pace at which each target has its turn a little more often than once an interval.
func (c *Checker) adjust(pace *rate.Limiter) {
	limit := min(1.05*float64(c.Endpoints())/c.settings.Interval.Seconds(), maxRate)
	pace.SetLimit(rate.Limit(limit))
	pace.SetBurst(max(1, int(limit/maxRate*maxBurst)))
}

// next returns the target whose turn it is, or nil if there is none or its last check has not ended.
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
		if t.flying {
			return nil
		}
		t.flying = true
		return t
	}
	return nil
}

func (c *Checker) land(t *target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.flying = false
}

// publish makes the dead known: at once after a quiet time, otherwise after a pause. The caller holds mu.
func (c *Checker) publish() {
	if c.pending {
		return
	}
	c.pending = true
	time.AfterFunc(publishPause-time.Since(c.published), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pending, c.published = false, time.Now()
		c.dead.Store(&Dead{Faults: maps.Clone(c.faults)})
		notify(c.changed)
	})
}

func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// take draws the conclusion from a result.
func (c *Checker) take(t *target, r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.flying = false
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
		t.against = 0
		return
	}
	if t.dead {
		need = passes
	}
	if t.against == 0 {
		t.since = r.began
	}
	if t.against++; t.against < need {
		return
	}
	t.dead, t.against = failed, 0
	c.note(t, r.fault)
	if t.dead {
		c.faults[t.addr] = fault.Fault{Since: t.since, Message: r.fault}
	} else {
		delete(c.faults, t.addr)
	}
	c.publish()
}
