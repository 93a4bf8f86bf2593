package doctor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
	"weak"

	"edgeway/daemon/doctor/finding"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

// Rounds is the daemon's own look at the host, again and again.
type Rounds struct {
	o       RoundsOptions
	planned chan struct{}
	once    sync.Once
	checks  []Check

	// networks are those of plan: in a big cluster to gather them takes longer than to look them up.
	plan     weak.Pointer[plan.Plan]
	networks []network

	mu    sync.Mutex
	found []Lasting
}

// RoundsOptions are what Rounds need. All are required.
type RoundsOptions struct {
	Logger *slog.Logger
	// Host gives what to look at now.
	Host func() *Host
	// Moved receives after a change of the host's network.
	Moved <-chan struct{}
}

// Lasting is a problem that holds now.
type Lasting struct {
	finding.Finding
	Since time.Time // when it was found first
	told  bool
}

// When to look. What one change brings about, as DHCP, comes in several steps; a router may see changes all the time.
const (
	roundsPeriod = time.Minute
	settle       = 500 * time.Millisecond
	afterMove    = 5 * time.Second // the least time between two looks
	// confirmed is when a new problem is looked at again: it is logged if it is still there.
	confirmed = 5 * time.Second
)

// NewRounds makes Rounds that have looked at nothing yet.
func NewRounds(o RoundsOptions) *Rounds {
	return &Rounds{o: o, planned: make(chan struct{}), checks: Cheap()}
}

// Planned says that there is a plan in the kernel. It does not block. The first one is looked at soon, others each
// minute: the changes of a cluster never end.
func (r *Rounds) Planned() { r.once.Do(func() { close(r.planned) }) }

// Problems gives those that hold now.
func (r *Rounds) Problems() []Lasting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

// Run looks until ctx ends, for the first time soon after the first Planned, or after a minute.
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
		case <-time.After(time.Until(due)):
			fresh := r.look(ctx)
			last = time.Now()
			due = last.Add(roundsPeriod)
			if fresh {
				due = last.Add(confirmed)
			}
		}
	}
}

// look runs the checks, logs what has begun and ended, and reports whether there are new problems.
func (r *Rounds) look(ctx context.Context) (fresh bool) {
	h := r.o.Host()
	if of := weak.Make(h.Plan); of != r.plan {
		r.plan, r.networks = of, h.networks()
	}
	h.known = r.networks
	var now []Lasting
	for _, f := range Look(ctx, h, r.checks) {
		switch {
		case f.Unknown:
			now = append(now, r.of(f.Check)...)
		case f.Level == finding.Problem:
			now = append(now, Lasting{Finding: f, Since: time.Now()})
		}
	}
	if ctx.Err() != nil {
		return false // what was asked for was cut off
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range now {
		if before := find(r.found, now[i]); before == nil {
			fresh = true
		} else {
			now[i].Since, now[i].told = before.Since, r.tell(before)
		}
	}
	for i := range r.found {
		if gone := &r.found[i]; gone.told && find(now, *gone) == nil {
			r.o.Logger.Info("a problem of this host is gone", "message_id", messageid.HostProblemGone,
				"check", gone.Check, "seen", gone.Seen)
		}
	}
	r.found = now
	return fresh
}

// of returns the problems that a check found the last time.
func (r *Rounds) of(check string) []Lasting {
	return slices.DeleteFunc(slices.Clone(r.Problems()), func(p Lasting) bool { return p.Check != check })
}

// tell logs a problem once.
func (r *Rounds) tell(p *Lasting) bool {
	if !p.told {
		r.o.Logger.Warn("connections fail because of a problem of this host", "message_id", messageid.HostProblem,
			"check", p.Check, "seen", p.Seen, "mend", p.Mend)
	}
	return true
}

// find gives the same problem: what was seen may have other figures by now.
func find(list []Lasting, p Lasting) *Lasting {
	for i := range list {
		if list[i].Check == p.Check && list[i].Mend == p.Mend {
			return &list[i]
		}
	}
	return nil
}
