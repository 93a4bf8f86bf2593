package doctor

import (
	"context"
	"slices"
	"sync"
	"time"

	"edgeway/proxiers/fault"
)

// Monitor runs the daemon's cheap checks repeatedly.
type Monitor struct {
	o       MonitorOptions
	planned chan struct{}
	once    sync.Once
	checks  []Check
	asked   chan struct{}

	// runMu protects lastRun and filter. The Monitor holds runMu while the checks run.
	runMu   sync.Mutex
	lastRun time.Time
	filter  dropCount

	mu    sync.Mutex
	found []fault.Fault
}

// MonitorOptions holds the dependencies of a Monitor. All fields are required.
type MonitorOptions struct {
	Host func() *Host
	// NetworkChanged receives a value after a change to the host's network.
	NetworkChanged <-chan struct{}
}

const (
	runPeriod = 50 * time.Second
	// changeDelay is the delay between a change to the network and a run of the checks, because one event, such as a
	// new DHCP lease, changes the network in several steps.
	changeDelay = 500 * time.Millisecond
	// minRunGap is the minimum time between two runs. The gap limits the load on a router, whose network may change
	// constantly.
	minRunGap = 5 * time.Second
	// filterPeriod is the minimum time for which a Monitor keeps a baseline of the reverse path filter's drop count.
	// The Monitor reports only drops since the baseline.
	filterPeriod = 2 * runPeriod
	// faultPeriod is the time between two runs while a problem exists. An operator who fixes the problem waits for the
	// next run, so faultPeriod is shorter than runPeriod.
	faultPeriod = 10 * time.Second
	// confirmDelay is the delay before the checks run again to confirm a new problem. A health.FaultLog waits longer
	// than confirmDelay before it logs a new problem.
	confirmDelay = 3 * time.Second
)

// NewMonitor returns a Monitor that has not run any check yet.
func NewMonitor(o MonitorOptions) *Monitor {
	return &Monitor{o: o, planned: make(chan struct{}), asked: make(chan struct{}, 1), checks: CheapChecks()}
}

// SignalPlan signals that Edgeway has applied a plan, and never blocks. Only the first call triggers a run of the
// checks, because the plan may change constantly.
func (m *Monitor) SignalPlan() { m.once.Do(func() { close(m.planned) }) }

// Faults returns the problems and notices of the latest run.
func (m *Monitor) Faults() []fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.found
}

// maxRunAge is the age that the latest run must reach before RunNow starts another.
const maxRunAge = time.Second

// RunNow runs the checks, unless another run started less than maxRunAge ago.
func (m *Monitor) RunNow(ctx context.Context) {
	m.runMu.Lock()
	recent := time.Since(m.lastRun) < maxRunAge
	m.runMu.Unlock()
	if recent || !m.runOnce(ctx) {
		return
	}
	select {
	case m.asked <- struct{}{}: // Run runs the checks again soon
	default:
	}
}

// Run runs the checks repeatedly until ctx is done. The first run starts soon after the first call to SignalPlan or the
// first network change, and after runPeriod at the latest.
func (m *Monitor) Run(ctx context.Context) {
	var last time.Time
	due := time.Now().Add(runPeriod)
	soon := func() {
		at := time.Now().Add(changeDelay)
		if next := last.Add(minRunGap); next.After(at) {
			at = next
		}
		if at.Before(due) {
			due = at
		}
	}
	planned := m.planned
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.o.NetworkChanged:
			soon()
		case <-planned:
			soon()
			planned = nil
		case <-m.asked:
			due = time.Now().Add(confirmDelay)
		case <-time.After(time.Until(due)):
			fresh := m.runOnce(ctx)
			last = time.Now()
			due = last.Add(m.pause(fresh))
		}
	}
}

func (m *Monitor) pause(fresh bool) time.Duration {
	switch {
	case fresh:
		return confirmDelay
	case fault.WorstSeverity(m.Faults()) >= fault.Problem:
		return faultPeriod
	}
	return runPeriod
}

type dropCount struct {
	base, last int
	since      time.Time // since is the time when base was set
}

// baseline returns the drop count from an earlier run, no more than about two filterPeriods ago. In the first run,
// baseline returns the current count.
func (d *dropCount) baseline(now int) int {
	if d.since.IsZero() {
		d.last = now
	}
	if time.Since(d.since) >= filterPeriod {
		d.base, d.since = d.last, time.Now()
	}
	d.last = now
	return d.base
}

// runOnce runs the checks and reports whether there are new faults.
func (m *Monitor) runOnce(ctx context.Context) (fresh bool) {
	m.runMu.Lock()
	defer m.runMu.Unlock()
	m.lastRun = time.Now()
	h := m.o.Host()
	h.previousDrops = m.filter.baseline(h.filtered())
	before := map[string]fault.Fault{}
	for _, f := range m.Faults() {
		before[key(f)] = f
	}
	now := m.find(ctx, h)
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.found = now
	return fresh
}

func (m *Monitor) find(ctx context.Context, h *Host) (out []fault.Fault) {
	for _, c := range m.checks {
		found, err := c.run(ctx, h)
		if err != nil { // an earlier problem may still exist
			found = slices.DeleteFunc(slices.Clone(m.Faults()), func(f fault.Fault) bool { return f.ID != c.Name })
		}
		for _, f := range found {
			if f.Severity >= fault.Problem || f.Severity == fault.Notice {
				out = append(out, f)
			}
		}
	}
	return out
}

// key returns a key that identifies a problem. The key excludes the message, because numbers in the message may change
// from one run to the next.
func key(f fault.Fault) string { return f.ID + " " + f.Fix }
