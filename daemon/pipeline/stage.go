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
	// currentPlan is the plan that the host's state matches, or nil if the host's state is unknown.
	currentPlan *plan.Plan
	// lastGoodPlan is the last plan that the stage applied successfully, even if the host's state is now unknown.
	lastGoodPlan *plan.Plan
	// reason explains why currentPlan is nil.
	reason string
	// failedPlan is the plan of the last failed Apply. An eager stage tries any other plan without a delay.
	failedPlan *plan.Plan
	eager      bool
	retry      backoff
	retryAt    time.Time
	// notBefore is the end of the pause after a panic.
	notBefore time.Time
	// driftPace delays repairs while another program keeps changing the rules. repairing reports whether the next
	// successful sync repairs drift.
	driftPace driftThrottle
	repairing bool
	// loggedErr is the last logged sync error.
	loggedErr string
	// loggedDeferredErr is the last logged error of deferred work.
	loggedDeferredErr string
	status            StageState
}

func newStage(s Stage) *stage {
	return &stage{
		Stage: s, reason: "first",
		retry:  backoff{first: retryFirst, limit: retryCap},
		status: StageState{Name: s.Name},
	}
}

func (s *stage) invalidate(reason string) {
	if s.currentPlan != nil {
		s.currentPlan, s.reason = nil, reason
	}
}

// dueAt returns the earliest time for syncing the stage to the target, or zero if the stage is in sync.
func (s *stage) dueAt(target *plan.Plan, now time.Time) time.Time {
	now = later(now, s.notBefore)
	switch {
	case s.currentPlan == target:
		return time.Time{}
	case s.eager && target != s.failedPlan:
		return now
	}
	return later(now, s.retryAt)
}

func (s *stage) due(target *plan.Plan) bool {
	now := time.Now()
	at := s.dueAt(target, now)
	return !at.IsZero() && !at.After(now)
}

func (s *stage) maintainAt() time.Time {
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

// recordDrift records that the kernel no longer matches the stage's plan. StageState.DriftRepairs counts only
// successful repairs.
func (s *stage) recordDrift(report driftReport, now time.Time) {
	s.status.DriftReason, s.status.LastDrift = report.reason, report.since
	s.repairing = s.lastGoodPlan != nil
	s.driftPace.hit(now)
}

func (s *stage) recordResult(now time.Time, target *plan.Plan, err error) {
	if err == nil {
		s.retry.reset()
		s.retryAt, s.failedPlan = time.Time{}, nil
		s.status.recovered()
		s.status.LastSync = now
		if s.repairing {
			s.status.DriftRepairs++
			s.repairing = false
		}
		return
	}
	s.invalidate("retry")
	s.failedPlan = target
	s.status.failed(now, err)
	s.retryAt = now.Add(s.retry.wait())
}

// change returns the Change from prev to next. Stages that need the same Change share it.
func (p *Pipeline) change(prev, next *plan.Plan) proxiers.Change {
	if p.step.Prev != prev || p.step.Next != next {
		p.step = proxiers.NewChange(prev, next)
	}
	return p.step
}

// changeSinceReport returns the Change from p.reportedPlan, the plan that OnSynced last received, to next. After a
// partial sync, the result is usually p.step, the Change that the stages share. changeSinceReport must not replace
// p.step with another Change.
func (p *Pipeline) changeSinceReport(next *plan.Plan) proxiers.Change {
	if p.step.Prev == p.reportedPlan && p.step.Next == next {
		return p.step
	}
	return proxiers.NewChange(p.reportedPlan, next)
}

// apply syncs the stage to target and reports whether the stage was out of sync. During an Apply, and after an error,
// Edgeway treats the host's state as unknown.
func (p *Pipeline) apply(ctx context.Context, s *stage, target *plan.Plan) (bool, error) {
	change := p.change(s.currentPlan, target)
	if change.Empty() {
		s.currentPlan = target
		return false, nil
	}
	event := ApplyResult{
		Stage: s.Name, Full: change.Prev == nil, ChangedCount: len(change.Changed), RemovedCount: len(change.Removed),
		Start: time.Now(),
	}
	if event.Full {
		event.Reason = s.reason
	}
	s.currentPlan, s.reason = nil, "retry"
	s.status.RunningSince, s.status.RunningFull = event.Start, event.Full
	p.progress.start()
	p.publish()
	event.Err = p.runWithLimit(ctx, applyTimeout(change),
		func(ctx context.Context) error { return s.Applier.Apply(ctx, change) })
	event.Err = p.refusePanic(s, event.Err)

	event.Duration = time.Since(event.Start)
	s.status.RunningSince, s.status.RunningFull = time.Time{}, false
	if event.Err == nil {
		s.currentPlan, s.lastGoodPlan = target, target
		s.status.applied(event)
	}
	if ctx.Err() == nil {
		p.logApplied(event)
		p.opts.OnApplied(event)
	}
	return true, event.Err
}

// runWithLimit runs a stage's work with a time limit, and returns a panic as an error. Until the limit expires, the
// heartbeat stays current even if the work reports no progress.
func (p *Pipeline) runWithLimit(ctx context.Context, limit time.Duration, work func(context.Context) error) error {
	p.beat.busyUntil(time.Now().Add(limit))
	defer p.beat.noteWork()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return contain.Call(func() error { return work(ctx) })
}

func (p *Pipeline) logApplied(e ApplyResult) {
	switch {
	case e.Err != nil: // the caller handles the error
	case e.Full:
		p.opts.Logger.Debug("full sync done", "stage", e.Stage, "reason", e.Reason, "service_ports", e.ChangedCount,
			"duration", e.Duration)
	default:
		p.opts.Logger.Debug("partial sync done", "stage", e.Stage, "changed", e.ChangedCount, "removed", e.RemovedCount,
			"duration", e.Duration)
	}
}

func (p *Pipeline) syncFollower(ctx context.Context, f *stage) {
	target := p.backend.currentPlan
	if target == nil || ctx.Err() != nil || !f.due(target) {
		return
	}
	partial := f.currentPlan != nil
	_, err := p.apply(ctx, f, target)
	err = p.isolatePanic(ctx, f, target, partial, err)
	p.finishSync(ctx, f, target, err)
	p.suspend(ctx, f, err)
}

// maintain runs a stage's deferred work if it is due. An error in this work does not make the kernel's state unknown.
func (p *Pipeline) maintain(ctx context.Context, s *stage) {
	at := s.maintainAt()
	if at.IsZero() || at.After(time.Now()) || ctx.Err() != nil {
		return
	}
	err := p.runWithLimit(ctx, maintainTimeout, s.Applier.(proxiers.Maintainer).Maintain)
	p.suspend(ctx, s, err)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.loggedDeferredErr && ctx.Err() == nil {
		p.opts.Logger.Warn("deferred work failed, retrying", "stage", s.Name, "error", err)
	}
	s.loggedDeferredErr = text
}

func (p *Pipeline) finishSync(ctx context.Context, s *stage, target *plan.Plan, err error) {
	if err != nil && ctx.Err() != nil {
		return // the daemon is stopping, so the error is not a failure
	}
	failed := s.status.Attempts
	s.recordResult(time.Now(), target, err)
	switch {
	case err != nil:
		p.logFailure(s, err)
	case failed > 0:
		s.loggedErr = ""
		p.opts.Logger.Info("sync recovered", "message_id", messageid.SyncRecovered,
			"stage", s.Name, "failed_attempts", failed)
	}
}

// logFailure logs a repeated error only at level DEBUG, because a stage may fail permanently.
func (p *Pipeline) logFailure(s *stage, err error) {
	level := slog.LevelError
	if err.Error() == s.loggedErr {
		level = slog.LevelDebug
	}
	s.loggedErr = err.Error()
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
	start, full := time.Now(), b.currentPlan == nil
	target := p.target
	if !full {
		target = nextStep(p.change(b.currentPlan, target))
	}
	worked, err := p.apply(ctx, b, target)
	if errors.Is(err, proxiers.ErrRefused) && ctx.Err() == nil {
		err = p.isolate(ctx, b, p.target, !full, err)
	}
	p.finishSync(ctx, b, target, err)
	p.suspend(ctx, b, err)
	if err != nil {
		p.record.behind(start)
		return
	}
	if b.currentPlan != p.target {
		return // the next call applies the next partial sync
	}
	p.refusal, p.panicLogged = "", false
	since := p.record.outOfSync
	triggers := p.record.synced()
	if p.drift.pending(b.Name) && !since.IsZero() { // more drift is pending, so the kernel is still out of sync
		p.record.behind(since)
	}
	if p.record.snapshot != nil {
		p.opts.OnSynced(p.record.snapshot, b.currentPlan, SyncResult{
			Unchanged: !worked, Full: full, Change: p.changeSinceReport(b.currentPlan), Start: start, Duration: time.Since(start),
			Triggers: triggers,
		})
		p.reportedPlan = b.currentPlan
	}
}
