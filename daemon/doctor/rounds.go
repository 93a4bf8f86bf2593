package doctor

import (
	"context"
	"slices"
	"sync"
	"time"

	"edgeway/proxiers/fault"
)

// Rounds runs the daemon's cheap checks repeatedly.
type Rounds struct {
	o       RoundsOptions
	planned chan struct{}
	once    sync.Once
	checks  []Check
	asked   chan struct{}

	// runMu protects lastRun and filter, and is locked while the checks run.
	looking sync.Mutex
	looked  time.Time
	filter  dropCount

	mu    sync.Mutex
	found []fault.Fault
}

// RoundsOptions holds the dependencies of a Monitor. All fields are required.
type RoundsOptions struct {
	Host func() *Host
	// Moved receives a value after a change to the host's network.
	Moved <-chan struct{}
}

// settle is the delay after a change to the network, because one event, such as a new DHCP lease, changes the network
// in several steps. afterMove limits the frequency of runs, because a router's network may change all the time.
const (
	roundsPeriod = 50 * time.Second
	settle       = 500 * time.Millisecond
	afterMove    = 5 * time.Second // minRunGap is the minimum time between two runs
	// filterPeriod is the minimum time during which a Monitor reports packets that the reverse path filter dropped.
	filterPeriod = 2 * roundsPeriod
	// faultPeriod is the time between two runs while a problem exists. faultPeriod is shorter than roundsPeriod,
	// because an operator who fixes the problem waits for the result.
	faultPeriod = 10 * time.Second
	// confirmed is the delay before the checks run again to confirm a new problem. health.FaultLog waits longer before
	// it logs a new problem.
	confirmed = 3 * time.Second
)

// NewRounds returns a Monitor that has not run any check yet.
func NewRounds(o RoundsOptions) *Rounds {
	return &Rounds{o: o, planned: make(chan struct{}), asked: make(chan struct{}, 1), checks: Cheap()}
}

// Planned signals that the kernel has a plan, and never blocks. Only the first plan triggers a run of the checks,
// because a cluster changes constantly.
func (r *Rounds) Planned() { r.once.Do(func() { close(r.planned) }) }

// Faults returns the problems and notices of the latest run.
func (r *Rounds) Faults() []fault.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

// atOnce is the maximum age of a run that RunNow does not repeat.
const atOnce = time.Second

// Now runs the checks, unless another run started less than atOnce ago.
func (r *Rounds) Now(ctx context.Context) {
	r.looking.Lock()
	recent := time.Since(r.looked) < atOnce
	r.looking.Unlock()
	if recent || !r.look(ctx) {
		return
	}
	select {
	case r.asked <- struct{}{}: // Run runs the checks again soon
	default:
	}
}

// Run runs the checks repeatedly until ctx is done. The first run starts soon after the first call to SignalPlan, or
// after roundsPeriod.
func (r *Rounds) Run(ctx context.Context) {
	var last time.Time
	due := time.Now().Add(roundsPeriod)
	soon := func() {
		at := time.Now().Add(settle)
		if next := last.Add(afterMove); next.After(at) {
			at = next
		}
		if at.Before(due) {
			due = at
		}
	}
	planned := r.planned
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.o.Moved:
			soon()
		case <-planned:
			soon()
			planned = nil
		case <-r.asked:
			due = time.Now().Add(confirmed)
		case <-time.After(time.Until(due)):
			fresh := r.look(ctx)
			last = time.Now()
			due = last.Add(r.pause(fresh))
		}
	}
}

func (r *Rounds) pause(fresh bool) time.Duration {
	switch {
	case fresh:
		return confirmed
	case fault.Worst(r.Faults()) >= fault.Problem:
		return faultPeriod
	}
	return roundsPeriod
}

type dropCount struct {
	base, last int
	since      time.Time // since is the time when base was set
}

// before returns the drop count from one to two filterPeriods ago.
func (d *dropCount) before(now int) int {
	if d.since.IsZero() {
		d.last = now
	}
	if time.Since(d.since) >= filterPeriod {
		d.base, d.since = d.last, time.Now()
	}
	d.last = now
	return d.base
}

// look runs the checks and reports whether there are new faults.
func (r *Rounds) look(ctx context.Context) (fresh bool) {
	r.looking.Lock()
	defer r.looking.Unlock()
	r.looked = time.Now()
	h := r.o.Host()
	h.filteredBefore = r.filter.before(h.filtered())
	before := map[string]fault.Fault{}
	for _, f := range r.Faults() {
		before[key(f)] = f
	}
	now := r.find(ctx, h)
	if ctx.Err() != nil {
		return false // ctx interrupted the run
	}
	for i := range now {
		f := &now[i]
		if earlier, again := before[key(*f)]; again {
			f.Since = earlier.Since
		} else {
			f.Since, fresh = time.Now(), true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = now
	return fresh
}

func (r *Rounds) find(ctx context.Context, h *Host) (out []fault.Fault) {
	for _, c := range r.checks {
		found, err := c.look(ctx, h)
		if err != nil { // an earlier problem may still exist
			found = slices.DeleteFunc(slices.Clone(r.Faults()), func(f fault.Fault) bool { return f.ID != c.Name })
		}
		for _, f := range found {
			if f.Severity >= fault.Problem || f.Severity == fault.Notice {
				out = append(out, f)
			}
		}
	}
	return out
}

// key identifies a problem without its message, because the numbers in the message may change from one run to the next.
func key(f fault.Fault) string { return f.ID + " " + f.Fix }
