// Package pipeline decides when to sync: it turns triggers (a changed object, a changed node address, an endpoint that
// died, drift in the kernel, the periodic full sync, a retry) into plans, and makes the stages apply them.
//
// One goroutine does all of it, in order: snapshot, plan, backend, followers. Each stage remembers
// the plan that it applied last; when the host's state is no longer known (first sync, failure,
// drift, periodic full sync) the stage forgets it and gets a Change without Prev.
package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

// Tracker is where snapshots come from.
type Tracker interface {
	Changer
	// Snapshot gives the newest state; false: nothing may be served yet.
	Snapshot() (*tracker.Snapshot, bool)
}

// Changer signals changes since its last signal.
type Changer interface {
	Changed() <-chan struct{}
}

// Stage is a named Applier.
type Stage struct {
	Name    string
	Applier proxiers.Applier
}

// Options are what a Pipeline is made with. The hooks may be nil; they run on the pipeline's
// goroutine and must not block.
type Options struct {
	Logger  *slog.Logger
	Tracker Tracker
	// Node signals changes of the host that affect the plan, Checks of who is dead; nil: nothing is checked.
	Node, Checks Changer
	// Plan makes the next plan, sharing with prev what did not change, and names the problems that
	// involve several objects, such as two Services with one address.
	Plan func(snap *tracker.Snapshot, prev *plan.Plan) (*plan.Plan, []fault.Fault)
	// FullSync is the mean time between periodic full syncs.
	FullSync time.Duration
	// InForce is what an earlier pipeline of this process left in the kernel; nil: nothing. With it, a reload does not
	// look like a host that serves nothing, and the first plan follows it; the first sync is still a full one. If the
	// sources have nothing to serve for a while, the pipeline syncs InForce itself.
	InForce *plan.Plan
	// Parts counts the panics of stages that no ServicePort is to blame for; nil: nothing counts them.
	Parts *contain.Parts
	// OnApplied is called after every Apply, failed or not.
	OnApplied func(Applied)
	// OnSynced is called when the backend is in sync with a plan of a snapshot. The plan may lack quarantined
	// ServicePorts.
	OnSynced func(*tracker.Snapshot, *plan.Plan, Synced)
}

// Applied is the outcome of one Apply.
type Applied struct {
	Stage string
	// Full says that the Change had no Prev; Reason says why, in words.
	Full   bool
	Reason string
	// Changed and Removed count the ServicePorts of the Change; of a full one, all are changed.
	Changed, Removed int
	Start            time.Time
	Duration         time.Duration
	Err              error
}

// Synced describes a backend sync that succeeded.
type Synced struct {
	// Unchanged says that the plan was the same as the last, so nothing was applied.
	Unchanged bool
	Full      bool
	// Change is the step from the plan of the last sync that succeeded, also if several Applies made it. Prev is nil
	// the first time.
	Change proxiers.Change
	// Start and Duration span all attempts of this sync, a search for refused ServicePorts included.
	Start    time.Time
	Duration time.Duration
	// Triggers are the times of the changes that are now in force, see tracker.Snapshot.Triggers.
	// Changes from before the pipeline ran are not included.
	Triggers []time.Time
}

// Pipeline is made by New. Its exported methods may be called from any goroutine.
type Pipeline struct {
	opts Options

	// Shared with other goroutines.
	wake     chan struct{}
	drift    driftReports
	beat     heartbeat
	progress progressMark
	state    atomic.Pointer[State]

	// The rest belongs to the goroutine of Run.
	started     time.Time
	backend     *stage
	followers   []*stage
	stages      []*stage        // all of them, the backend first
	dirty       bool            // tracker, node or checks changed since the last plan
	plan        *plan.Plan      // the newest of the planner
	target      *plan.Plan      // plan without what is quarantined
	quarantine  quarantine      // what the backend refused
	reported    *plan.Plan      // the plan of the last OnSynced
	refusal     string          // the refusal that was logged last
	step        proxiers.Change // the newest, which most stages have in common
	pace        pacing          // when what may happen
	record      record          // what State shows
	panicLogged bool            // a panic of a stage, since the last sync
	fatal       error           // ends Run: a stage panicked too often
}

// New has no side effects; Run does the work.
func New(opts Options) *Pipeline {
	p := &Pipeline{opts: opts, wake: make(chan struct{}, 1), quarantine: quarantine{}}
	p.state.Store(&State{InForce: opts.InForce})
	return p
}

// Run syncs until ctx ends. The backend goes first; the followers get the plan that it has put in
// force, and a failure of one does not delay the others. Run closes nothing. It may run again after a panic.
func (p *Pipeline) Run(ctx context.Context, backend Stage, followers ...Stage) error {
	p.started = time.Now()
	if p.stages == nil {
		p.arrange(backend, followers)
	} else {
		p.resume()
	}
	p.dirty = true
	p.pace.planFull(p.started, p.opts.FullSync)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var checks <-chan struct{} // nil: never
	if p.opts.Checks != nil {
		checks = p.opts.Checks.Changed()
	}
	for ctx.Err() == nil && p.fatal == nil {
		p.beat.idle()
		select {
		case <-ctx.Done():
			return nil
		case <-p.opts.Tracker.Changed():
			p.noteChange()
		case <-p.opts.Node.Changed():
			p.noteChange()
		case <-checks:
			p.noteChange()
		case <-p.wake:
		case <-timer.C:
		}
		p.beat.working()
		p.noteDrift()
		if at, ok := p.nextSync(); ok && !at.After(time.Now()) {
			p.sync(ctx)
		}
		if at, ok := p.nextSync(); ok {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
	}
	return p.fatal
}

func (p *Pipeline) arrange(backend Stage, followers []Stage) {
	p.backend = newStage(backend)
	p.backend.lastGood = p.opts.InForce
	for _, f := range followers {
		follower := newStage(f)
		follower.eager = true
		p.followers = append(p.followers, follower)
	}
	p.stages = append([]*stage{p.backend}, p.followers...)
}

func (p *Pipeline) noteChange() {
	p.dirty = true
	p.record.queuedAt = time.Now()
}

// nextSync says when there will be something to do; false: not before the next trigger.
func (p *Pipeline) nextSync() (time.Time, bool) {
	var next time.Time
	consider := func(t time.Time) { // zero: never
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	now := time.Now()
	if p.dirty {
		consider(now)
	}
	consider(p.adoptAt())
	for _, s := range p.stages {
		if due := s.tendAt(); !due.IsZero() {
			consider(later(now, due))
		}
		if p.plan != nil && p.drift.pending(s.Name) {
			consider(later(now, s.driftPace.notBefore))
		}
	}
	if p.plan != nil {
		consider(p.pace.nextFull)
		consider(p.backend.dueAt(p.target, now))
		if p.backend.applied != nil {
			for _, f := range p.followers {
				consider(f.dueAt(p.backend.applied, now))
			}
		}
	}
	if next.IsZero() {
		return next, false
	}
	return later(next, p.pace.notBefore), true
}

// sync does all that is due.
func (p *Pipeline) sync(ctx context.Context) {
	began := time.Now()
	p.takeFull()
	if p.dirty {
		p.replan()
	}
	if p.plan != nil {
		p.syncBackend(ctx)
		for _, f := range p.followers {
			p.syncFollower(ctx, f)
		}
	}
	for _, s := range p.stages {
		p.tend(ctx, s)
	}
	p.pace.pause(began, time.Now())
	p.publish()
}

func (p *Pipeline) replan() {
	p.dirty = false
	snap, ok := p.opts.Tracker.Snapshot()
	if !ok {
		return
	}
	prev := p.plan
	if prev == nil {
		prev = p.opts.InForce
	}
	next, planProblems := p.opts.Plan(snap, prev)
	p.record.planned(snap, planProblems, p.started)
	p.plan = next
	p.retarget()
	if p.backend.applied != p.target {
		p.record.behind(time.Now())
	}
	p.publish()
}

// retarget derives the plan to put in force from the planner's and the quarantine. It keeps the
// pointer when nothing differs, so that a stage which is in sync stays so.
func (p *Pipeline) retarget() {
	p.target = p.quarantine.filter(p.plan)
}

// adoptAfter is how long a pipeline that has InForce waits for its first plan.
const adoptAfter = 30 * time.Second

// adoptAt is when InForce becomes the plan, as there is none yet: at the first report of drift, or after adoptAfter. It
// is zero if there is nothing to adopt. The pipeline does not know what the kernel holds until it has synced. Without a
// plan it would repair nothing, and be healthy.
func (p *Pipeline) adoptAt() time.Time {
	if p.plan != nil || p.opts.InForce == nil {
		return time.Time{}
	}
	if p.drift.pending(p.backend.Name) {
		return time.Now()
	}
	return p.started.Add(adoptAfter)
}

func (p *Pipeline) adopt(now time.Time) {
	if at := p.adoptAt(); !at.IsZero() && !at.After(now) {
		p.plan = p.opts.InForce
		p.retarget()
		p.record.behind(now)
	}
}

// takeFull invalidates stages after a drift report, or all for the periodic full sync.
func (p *Pipeline) takeFull() {
	now := time.Now()
	p.adopt(now)
	if p.plan == nil {
		return
	}
	if !now.Before(p.pace.nextFull) {
		p.invalidate("periodic")
		if len(p.quarantine) > 0 {
			clear(p.quarantine)
			p.retarget()
		}
		p.pace.planFull(now, p.opts.FullSync)
	}
	for _, s := range p.stages {
		if now.Before(s.driftPace.notBefore) {
			continue
		}
		if report, ok := p.drift.take(s.Name); ok {
			p.drifted(s, report, now)
		}
	}
}

// noteDrift makes the state tell of a drift of the backend whose repair has to wait.
func (p *Pipeline) noteDrift() {
	if report, ok := p.drift.get(p.backend.Name); ok && p.plan != nil && p.record.outOfSync.IsZero() {
		p.record.behind(report.since)
		p.publish()
	}
}

// drifted invalidates a stage. If it is the backend, all are invalidated: while its rules were gone, connections may
// have been made that the followers must look at.
func (p *Pipeline) drifted(s *stage, report driftReport, now time.Time) {
	p.opts.Logger.Warn("kernel state drifted, full sync", "message_id", messageid.Drifted,
		"stage", s.Name, "cause", report.reason)
	s.drifted(report, now)
	if s != p.backend {
		s.invalidate("drift: " + report.reason)
		return
	}
	p.record.behind(report.since)
	p.invalidate("drift: " + report.reason)
}

func (p *Pipeline) invalidate(reason string) {
	for _, s := range p.stages {
		s.invalidate(reason)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
