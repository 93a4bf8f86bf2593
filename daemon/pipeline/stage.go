package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// stage is an Applier with its memory.
type stage struct {
	Stage
	// applied is the plan that the host agrees with, as far as is known; nil: not known.
	applied *plan.Plan
	// lastGood is the last plan that was applied with success, even when the state is unknown since.
	lastGood *plan.Plan
	// reason says why applied is nil.
	reason  string
	retry   backoff
	retryAt time.Time
	status  StageState
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

func (s *stage) due(target *plan.Plan) bool {
	return s.applied != target && !time.Now().Before(s.retryAt)
}

// settle notes the outcome of a sync and plans the retry.
func (s *stage) settle(now time.Time, err error) {
	if err == nil {
		s.retry.reset()
		s.retryAt = time.Time{}
		s.status.Err, s.status.Since, s.status.Attempts = nil, time.Time{}, 0
		s.status.LastSync = now
		return
	}
	s.invalidate("retry")
	if s.status.Err == nil {
		s.status.Since = now
	}
	s.status.Err, s.status.LastErr = err, now
	s.status.Attempts++
	s.retryAt = now.Add(s.retry.wait())
}

// unchanged reports that a change has no content, so that a partial Apply would do nothing.
func unchanged(c proxiers.Change, changed, removed []*plan.ServicePort) bool {
	return c.Prev != nil && len(changed)+len(removed) == 0 && c.Prev.Node == c.Next.Node &&
		slices.EqualFunc(c.Prev.HealthChecks, c.Next.HealthChecks, func(a, b *plan.HealthCheck) bool {
			return a == b || *a == *b
		})
}

// apply brings the stage to target and reports whether there was anything to do. While it runs, and
// after an error, the host's state counts as unknown.
func (p *Pipeline) apply(ctx context.Context, s *stage, target *plan.Plan) (bool, error) {
	change := proxiers.Change{Prev: s.applied, Next: target}
	changed, removed := plan.Diff(change.Prev, change.Next)
	if unchanged(change, changed, removed) {
		s.applied = target
		return false, nil
	}
	event := Applied{
		Stage: s.Name, Full: change.Prev == nil, Changed: len(changed), Removed: len(removed), Start: time.Now(),
	}
	if event.Full {
		event.Reason = s.reason
	}
	s.applied, s.reason = nil, "retry"
	s.status.Running, s.status.RunningFull = event.Start, event.Full
	p.progress.start()
	p.beat.busy()
	p.publish()

	applyCtx, cancel := context.WithTimeout(ctx, applyTimeout(len(changed)+len(removed)))
	event.Err = s.Applier.Apply(applyCtx, change)
	cancel()

	event.Duration = time.Since(event.Start)
	p.beat.busy()
	s.status.Running, s.status.RunningFull = time.Time{}, false
	if event.Err == nil {
		s.applied, s.lastGood = target, target
		s.status.applied(event)
	}
	if ctx.Err() == nil {
		p.logApplied(event)
		if p.opts.OnApplied != nil {
			p.opts.OnApplied(event)
		}
	}
	return true, event.Err
}

func (p *Pipeline) logApplied(e Applied) {
	switch {
	case e.Err != nil: // the caller decides what it means
	case e.Full:
		p.opts.Logger.Info("full sync done", "stage", e.Stage, "reason", e.Reason, "service_ports", e.Changed, "duration", e.Duration)
	default:
		p.opts.Logger.Debug("partial sync done", "stage", e.Stage, "changed", e.Changed, "removed", e.Removed, "duration", e.Duration)
	}
}

func (p *Pipeline) syncFollower(ctx context.Context, f *stage) {
	target := p.backend.applied
	if target == nil || ctx.Err() != nil || !f.due(target) {
		return
	}
	_, err := p.apply(ctx, f, target)
	p.settle(ctx, f, err)
}

// settle is the one place where a failed sync is logged.
func (p *Pipeline) settle(ctx context.Context, s *stage, err error) {
	if err != nil && ctx.Err() != nil {
		return // stopping, not failing
	}
	failed := s.status.Attempts
	s.settle(time.Now(), err)
	switch {
	case err != nil:
		p.opts.Logger.Error("sync failed", "stage", s.Name, "attempt", s.status.Attempts, "retry_in", time.Until(s.retryAt), "error", err)
	case failed > 0:
		p.opts.Logger.Info("sync recovered", "stage", s.Name, "failed_attempts", failed)
	}
}

// syncBackend brings the backend to the target, without what the kernel refuses.
func (p *Pipeline) syncBackend(ctx context.Context) {
	b := p.backend
	if !b.due(p.target) {
		return
	}
	start, full := time.Now(), b.applied == nil
	suspects, _ := plan.Diff(b.lastGood, p.target)
	if len(suspects) == 0 {
		suspects = p.target.Services
	}
	worked, err := p.apply(ctx, b, p.target)
	if errors.Is(err, proxiers.ErrRefused) && ctx.Err() == nil {
		err = p.isolate(ctx, suspects, !full, err)
	}
	p.settle(ctx, b, err)
	if err != nil {
		p.record.behind(start)
		return
	}
	triggers := p.record.synced()
	if p.opts.OnSynced != nil {
		p.opts.OnSynced(p.record.snapshot, b.applied, Synced{
			Unchanged: !worked, Full: full, Start: start, Duration: time.Since(start), Triggers: triggers,
		})
	}
}
