// Package pipeline decides when to sync. The triggers are changed objects, changed host addresses, endpoints that die
// or recover, drift in the kernel, periodic full syncs and retries. After a trigger, the pipeline creates a plan, and
// the stages apply it.
//
// One goroutine does all the work, in this order: snapshot, plan, backend, followers. Each stage remembers the last
// plan that it applied. When the host's state becomes unknown (first sync, failure, drift, periodic full sync), the
// stage forgets its last plan and receives a Change without Prev.
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

// Tracker provides the snapshots.
type Tracker interface {
	Changer
	// Snapshot returns the newest snapshot, or false if the sources have not provided enough objects yet.
	Snapshot() (*tracker.Snapshot, bool)
}

// Changer signals that its state has changed since the last signal.
type Changer interface {
	Changed() <-chan struct{}
}

// Stage is a named Applier.
type Stage struct {
	Name    string
	Applier proxiers.Applier
}

// Options configures a Pipeline. The hooks run on the pipeline's goroutine and must not block.
type Options struct {
	Logger  *slog.Logger
	Tracker Tracker
	// Node signals host changes that affect the plan. Checks signals that endpoints died or recovered.
	Node, Checks Changer
	// Plan creates the next plan, which shares unchanged data with prev. Plan also returns the problems that involve
	// several objects, such as two Services with the same address.
	Plan func(snap *tracker.Snapshot, prev *plan.Plan) (*plan.Plan, []fault.Fault)
	// FullSyncInterval is the mean time between periodic full syncs.
	FullSyncInterval time.Duration
	// AppliedPlan is the plan that an earlier pipeline in this process left in the kernel, or nil if there is no such
	// plan. Without AppliedPlan, the status after a reload would report that the host serves no Services. The first
	// plan is based on AppliedPlan, but the first sync is still a full sync. If the sources provide no snapshot within
	// adoptDelay, the pipeline syncs AppliedPlan.
	AppliedPlan *plan.Plan
	// Parts counts the stage panics that no single ServicePort caused.
	Parts *contain.Parts
	// OnApplied runs after every Apply, whether it succeeded or failed.
	OnApplied func(ApplyResult)
	// OnSynced runs when the backend is in sync with the plan for a snapshot. The plan excludes the refused versions of
	// quarantined ServicePorts.
	OnSynced func(*tracker.Snapshot, *plan.Plan, SyncResult)
}

// ApplyResult is the outcome of one Apply.
type ApplyResult struct {
	Stage string
	// Full reports whether the Change had no Prev. Reason states why the sync was a full sync.
	Full   bool
	Reason string
	// ChangedCount and RemovedCount count the changed and the removed ServicePorts in the Change. A full Change counts
	// all ServicePorts as changed.
	ChangedCount, RemovedCount int
	Start                      time.Time
	Duration                   time.Duration
	Err                        error
}

// SyncResult describes a successful backend sync.
type SyncResult struct {
	// Unchanged reports whether the plan equals the last plan, in which case the backend had no work to do.
	Unchanged bool
	Full      bool
	// Change is the difference from the plan of the last successful sync, even if this sync needed several Applies.
	// Prev is nil in the first Change.
	Change proxiers.Change
	// Start and Duration span all attempts of this sync, including a search for refused ServicePorts.
	Start    time.Time
	Duration time.Duration
	// Triggers holds the times of the changes that the sync applied, except changes before the pipeline started. See
	// tracker.Snapshot.Triggers.
	Triggers []time.Time
}

// Pipeline runs the stages. Use New to create a Pipeline. Any goroutine may call the exported methods.
type Pipeline struct {
	opts Options

	// The methods that other goroutines call also use the following fields.
	wake     chan struct{}
	drift    driftReports
	beat     heartbeat
	progress progressMark
	state    atomic.Pointer[State]

	// Only Run's goroutine uses the following fields.
	started      time.Time
	backend      *stage
	followers    []*stage
	stages       []*stage   // all stages, the backend first
	dirty        bool       // whether Tracker, Node or Checks has signalled a change since the last plan
	plan         *plan.Plan // the planner's newest plan
	target       *plan.Plan // plan without the quarantined ServicePorts
	quarantine   quarantine // the ServicePorts that the backend refused
	reportedPlan *plan.Plan // the plan that OnSynced last received
	refusal      string
	step         proxiers.Change // the newest step, which most stages share
	pace         pacing
	record       record
	panicLogged  bool  // whether the pipeline has logged a stage's panic since the last sync
	fatalErr     error // ends Run after too many panics in a stage
}

// New returns a Pipeline that does nothing before Run.
func New(opts Options) *Pipeline {
	p := &Pipeline{opts: opts, wake: make(chan struct{}, 1), quarantine: quarantine{}}
	p.state.Store(&State{AppliedPlan: opts.AppliedPlan})
	return p
}

// Run syncs the stages, the backend first, until ctx is done. The followers receive the plan that the backend has
// applied. A follower's failure does not delay the other followers. Run does not close the stages. The caller may call
// Run again after a panic.
func (p *Pipeline) Run(ctx context.Context, backend Stage, followers ...Stage) error {
	p.started = time.Now()
	if p.stages == nil {
		p.arrange(backend, followers)
	} else {
		p.resetStages()
	}
	p.dirty = true
	p.pace.scheduleFull(p.started, p.opts.FullSyncInterval)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil && p.fatalErr == nil {
		p.beat.noteIdle()
		select {
		case <-ctx.Done():
			return nil
		case <-p.opts.Tracker.Changed():
			p.noteChange()
		case <-p.opts.Node.Changed():
			p.noteChange()
		case <-p.opts.Checks.Changed():
			p.noteChange()
		case <-p.wake:
		case <-timer.C:
		}
		p.beat.noteWork()
		p.publishDrift()
		if at, ok := p.nextSync(); ok && !at.After(time.Now()) {
			p.sync(ctx)
		}
		if at, ok := p.nextSync(); ok {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
	}
	return p.fatalErr
}

func (p *Pipeline) arrange(backend Stage, followers []Stage) {
	p.backend = newStage(backend)
	p.backend.lastGoodPlan = p.opts.AppliedPlan
	for _, f := range followers {
		follower := newStage(f)
		follower.eager = true
		p.followers = append(p.followers, follower)
	}
	p.stages = append([]*stage{p.backend}, p.followers...)
	p.publish() // the status lists the stages before they run
}

func (p *Pipeline) noteChange() {
	p.dirty = true
	p.record.queuedAt = time.Now()
}

// nextSync returns the time when work is next due, or false if no work is due before the next trigger.
func (p *Pipeline) nextSync() (time.Time, bool) {
	var next time.Time
	consider := func(t time.Time) { // a zero time means never
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	now := time.Now()
	if p.dirty {
		consider(now)
	}
	consider(p.adoptTime())
	for _, s := range p.stages {
		if due := s.maintainAt(); !due.IsZero() {
			consider(later(now, due))
		}
		if p.plan != nil && p.drift.pending(s.Name) {
			consider(later(now, s.driftPace.notBefore))
		}
	}
	if p.plan != nil {
		consider(p.pace.nextFull)
		consider(p.backend.dueAt(p.target, now))
		if p.backend.currentPlan != nil {
			for _, f := range p.followers {
				consider(f.dueAt(p.backend.currentPlan, now))
			}
		}
	}
	if next.IsZero() {
		return next, false
	}
	return later(next, p.pace.notBefore), true
}

func (p *Pipeline) sync(ctx context.Context) {
	began := time.Now()
	p.invalidateStages()
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
		p.maintain(ctx, s)
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
		prev = p.opts.AppliedPlan
	}
	next, planProblems := p.opts.Plan(snap, prev)
	p.record.planned(snap, planProblems, p.started)
	p.plan = next
	p.retarget()
	if p.backend.currentPlan != p.target {
		p.record.behind(time.Now())
	}
	p.publish()
}

// retarget derives the target from the planner's plan and the quarantine. If the quarantine is empty, the target is the
// plan itself, so a synced stage stays in sync.
func (p *Pipeline) retarget() {
	p.target = p.quarantine.filter(p.plan)
}

// adoptDelay is the maximum time that a pipeline with Options.AppliedPlan waits for the first plan.
const adoptDelay = 30 * time.Second

// adoptTime returns the time when the pipeline, if it still has no plan, adopts Options.AppliedPlan: now if the backend
// has reported drift, or adoptDelay after Run started. adoptTime returns zero if a plan exists or AppliedPlan is nil. A
// pipeline without a plan would repair no drift but still count as healthy.
func (p *Pipeline) adoptTime() time.Time {
	if p.plan != nil || p.opts.AppliedPlan == nil {
		return time.Time{}
	}
	if p.drift.pending(p.backend.Name) {
		return time.Now()
	}
	return p.started.Add(adoptDelay)
}

func (p *Pipeline) adopt(now time.Time) {
	if at := p.adoptTime(); !at.IsZero() && !at.After(now) {
		p.plan = p.opts.AppliedPlan
		p.retarget()
		p.record.behind(now)
	}
}

// invalidateStages invalidates the stages that reported drift, or all stages if a periodic full sync is due.
func (p *Pipeline) invalidateStages() {
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
		p.pace.scheduleFull(now, p.opts.FullSyncInterval)
	}
	for _, s := range p.stages {
		if now.Before(s.driftPace.notBefore) {
			continue
		}
		if report, ok := p.drift.take(s.Name); ok {
			p.invalidateDrifted(s, report, now)
		}
	}
}

// publishDrift publishes the backend's drift, even if the repair is delayed.
func (p *Pipeline) publishDrift() {
	if report, ok := p.drift.get(p.backend.Name); ok && p.plan != nil && p.record.outOfSync.IsZero() {
		p.record.behind(report.since)
		p.publish()
	}
}

// invalidateDrifted invalidates a stage after drift. If the stage is the backend, invalidateDrifted invalidates all
// stages, because the followers must inspect the connections that clients opened while the backend's rules were
// missing.
func (p *Pipeline) invalidateDrifted(s *stage, report driftReport, now time.Time) {
	p.opts.Logger.Warn("kernel state drifted, running a full sync", "message_id", messageid.Drifted,
		"stage", s.Name, "cause", report.reason)
	s.recordDrift(report, now)
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
