package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

type stage struct {
	Stage
	// applied is the plan that the host's state matches, or nil if the host's state is unknown.
	applied *plan.Plan
	// lastGood is the last plan that the stage applied successfully, even if the host's state is now unknown.
	lastGood *plan.Plan
	// reason explains why currentPlan is nil.
	reason string
	// failed is the plan of the last failed Apply. An eager stage tries a different plan without a delay.
	failed  *plan.Plan
	eager   bool
	retry   backoff
	retryAt time.Time
	// notBefore is the end of the pause after a panic.
	notBefore time.Time
	// driftPace delays repairs while another program keeps changing the rules. repairing reports whether the next
	// successful sync repairs drift.
	driftPace driftThrottle
	repairing bool
	// said is the last logged sync error.
	said string
	// loggedDeferred is the last logged error of deferred work.
	loggedDeferred string
	status         StageState
}

func newStage(s Stage) *stage {
	return &stage{
		Stage: s, reason: "first",
		retry:  backoff{first: retryFirst, limit: retryCap},
		status: StageState{Name: s.Name},
	}
}

func (s *stage) invalidate(reason string) {
	if s.applied != nil {
		s.applied, s.reason = nil, reason
	}
}

// dueAt returns the earliest time for syncing the stage to the target, or zero if the stage is in sync.
func (s *stage) dueAt(target *plan.Plan, now time.Time) time.Time {
	now = later(now, s.notBefore)
	switch {
	case s.applied == target:
		return time.Time{}
	case s.eager && target != s.failed:
		return now
	}
	return later(now, s.retryAt)
}

func (s *stage) due(target *plan.Plan) bool {
	now := time.Now()
	at := s.dueAt(target, now)
	return !at.IsZero() && !at.After(now)
}

func (s *stage) tendAt() time.Time {
	t, ok := s.Applier.(proxiers.Maintainer)
	if !ok {
		return time.Time{}
	}
	due := t.Due()
	if due.IsZero() {
		return due
	}
	return later(due, s.notBefore)
}

// drifted records a drift report. StageState.DriftRepairs counts only successful repairs.
func (s *stage) drifted(report driftReport, now time.Time) {
	s.status.DriftReason, s.status.LastDrift = report.reason, report.since
	s.repairing = s.lastGood != nil
	s.driftPace.hit(now)
}

func (s *stage) settle(now time.Time, target *plan.Plan, err error) {
	if err == nil {
		s.retry.reset()
		s.retryAt, s.failed = time.Time{}, nil
		s.status.recovered()
		s.status.LastSync = now
		if s.repairing {
			s.status.Drift++
			s.repairing = false
		}
		return
	}
	s.invalidate("retry")
	s.failed = target
	s.status.failed(now, err)
	s.retryAt = now.Add(s.retry.wait())
}

// change returns the Change from prev to next, which stages that need the same Change share.
func (p *Pipeline) change(prev, next *plan.Plan) proxiers.Change {
	if p.step.Prev != prev || p.step.Next != next {
		p.step = proxiers.NewChange(prev, next)
	}
	return p.step
}

// sinceReported returns the Change from the plan that OnSynced last received to next. After a partial sync, the stages
// usually share the Change that sinceReported returns. No other Change may replace the shared Change.
func (p *Pipeline) sinceReported(next *plan.Plan) proxiers.Change {
	if p.step.Prev == p.reported && p.step.Next == next {
		return p.step
	}
	return proxiers.NewChange(p.reported, next)
}

// apply syncs the stage to target and reports whether the stage was out of sync. During an Apply, and after an error,
// Edgeway treats the host's state as unknown.
func (p *Pipeline) apply(ctx context.Context, s *stage, target *plan.Plan) (bool, error) {
	change := p.change(s.applied, target)
	if change.Empty() {
		s.applied = target
		return false, nil
	}
	event := Applied{
		Stage: s.Name, Full: change.Prev == nil, Changed: len(change.Changed), Removed: len(change.Removed),
		Start: time.Now(),
	}
	if event.Full {
		event.Reason = s.reason
	}
	s.applied, s.reason = nil, "retry"
	s.status.Running, s.status.RunningFull = event.Start, event.Full
	p.progress.start()
	p.publish()
	event.Err = p.bounded(ctx, applyTimeout(change),
		func(ctx context.Context) error { return s.Applier.Apply(ctx, change) })
	event.Err = p.refusePanic(s, event.Err)

	event.Duration = time.Since(event.Start)
	s.status.Running, s.status.RunningFull = time.Time{}, false
	if event.Err == nil {
		s.applied, s.lastGood = target, target
		s.status.applied(event)
	}
	if ctx.Err() == nil {
		p.logApplied(event)
		p.opts.OnApplied(event)
	}
	return true, event.Err
}

// bounded runs a stage's work with a time limit, and returns a panic as an error. Until the limit, the work may run
// without reporting progress.
func (p *Pipeline) bounded(ctx context.Context, limit time.Duration, work func(context.Context) error) error {
	p.beat.busyUntil(time.Now().Add(limit))
	defer p.beat.working()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return contain.Call(func() error { return work(ctx) })
}

func (p *Pipeline) logApplied(e Applied) {
	switch {
	case e.Err != nil: // the caller handles the error
	case e.Full:
		p.opts.Logger.Debug("full sync done", "stage", e.Stage, "reason", e.Reason, "service_ports", e.Changed,
			"duration", e.Duration)
	default:
		p.opts.Logger.Debug("partial sync done", "stage", e.Stage, "changed", e.Changed, "removed", e.Removed,
			"duration", e.Duration)
	}
}

func (p *Pipeline) syncFollower(ctx context.Context, f *stage) {
	target := p.backend.applied
	if target == nil || ctx.Err() != nil || !f.due(target) {
		return
	}
	partial := f.applied != nil
	_, err := p.apply(ctx, f, target)
	err = p.isolatePanic(ctx, f, target, partial, err)
	p.settle(ctx, f, target, err)
	p.suspend(ctx, f, err)
}

// tend runs a stage's deferred work if the work is due. If the work fails, the pipeline still knows the kernel's state.
func (p *Pipeline) tend(ctx context.Context, s *stage) {
	at := s.tendAt()
	if at.IsZero() || at.After(time.Now()) || ctx.Err() != nil {
		return
	}
	err := p.bounded(ctx, maintainTimeout, s.Applier.(proxiers.Maintainer).Maintain)
	p.suspend(ctx, s, err)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.loggedDeferred && ctx.Err() == nil {
		p.opts.Logger.Warn("deferred work failed, retrying", "stage", s.Name, "error", err)
	}
	s.loggedDeferred = text
}

func (p *Pipeline) settle(ctx context.Context, s *stage, target *plan.Plan, err error) {
	if err != nil && ctx.Err() != nil {
		return // the daemon is stopping, so the error is not a failure
	}
	failed := s.status.Attempts
	s.settle(time.Now(), target, err)
	switch {
	case err != nil:
		p.logFailure(s, err)
	case failed > 0:
		s.said = ""
		p.opts.Logger.Info("sync recovered", "message_id", messageid.SyncRecovered,
			"stage", s.Name, "failed_attempts", failed)
	}
}

// logFailure logs a repeated error only at level DEBUG, because a stage may fail permanently.
func (p *Pipeline) logFailure(s *stage, err error) {
	level := slog.LevelError
	if err.Error() == s.said {
		level = slog.LevelDebug
	}
	s.said = err.Error()
	p.opts.Logger.Log(context.Background(), level, "sync failed", "message_id", messageid.SyncFailed,
		"stage", s.Name, "attempt", s.status.Attempts,
		"retry_in", max(0, time.Until(s.retryAt)), "error", err)
}

// syncBackend syncs the backend to the target. If the kernel refuses ServicePorts, syncBackend leaves them out.
func (p *Pipeline) syncBackend(ctx context.Context) {
	b := p.backend
	if !b.due(p.target) {
		return
	}
	start, full := time.Now(), b.applied == nil
	target := p.target
	if !full {
		target = nextStep(p.change(b.applied, target))
	}
	worked, err := p.apply(ctx, b, target)
	if errors.Is(err, proxiers.ErrRefused) && ctx.Err() == nil {
		err = p.isolate(ctx, b, p.target, !full, err)
	}
	p.settle(ctx, b, target, err)
	p.suspend(ctx, b, err)
	if err != nil {
		p.record.behind(start)
		return
	}
	if b.applied != p.target {
		return // the next call applies the next partial sync
	}
	p.refusal, p.panicLogged = "", false
	since := p.record.outOfSync
	triggers := p.record.synced()
	if p.drift.pending(b.Name) && !since.IsZero() { // more drift is pending, so the kernel is still out of sync
		p.record.behind(since)
	}
	if p.record.snapshot != nil {
		p.opts.OnSynced(p.record.snapshot, b.applied, Synced{
			Unchanged: !worked, Full: full, Change: p.sinceReported(b.applied), Start: start, Duration: time.Since(start),
			Triggers: triggers,
		})
		p.reported = b.applied
	}
}
