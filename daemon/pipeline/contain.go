package pipeline

import (
	"context"
	"errors"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/plan"
)

// panicError reports a panic in a stage's Apply. The pipeline treats the panic as a refusal, so the search for refused
// ServicePorts can find the ServicePort that causes the panic.
type panicError struct {
	stage string
	err   error
}

func (e *panicError) Error() string { return "stage " + e.stage + ": " + e.err.Error() }

func (e *panicError) Unwrap() []error { return []error{proxiers.ErrRefused, e.err} }

// refusePanic converts a panic in Apply to a refusal. refusePanic logs only one stack trace per sync, because the
// search for the faulty ServicePort repeats the panic in each attempt, perhaps with a different message.
func (p *Pipeline) refusePanic(s *stage, err error) error {
	if !contain.IsPanic(err) {
		return err
	}
	if !p.panicLogged {
		p.panicLogged = true
		p.opts.Logger.Error("stage panicked", "stage", s.Name, "error", err, "stack", contain.Stack(err))
	}
	return &panicError{s.Name, err}
}

// isolatePanic searches for the ServicePort that causes a panic in a follower. The backend then applies the plan
// without the faulty ServicePort, and the follower receives the same plan.
func (p *Pipeline) isolatePanic(ctx context.Context, f *stage, target *plan.Plan, partial bool, err error) error {
	if !contain.IsPanic(err) || ctx.Err() != nil {
		return err
	}
	return p.isolate(ctx, f, target, partial, err)
}

// suspend pauses a stage after a panic that no single ServicePort caused, because Edgeway then does not know the
// kernel's state.
func (p *Pipeline) suspend(ctx context.Context, s *stage, err error) {
	if !contain.IsPanic(err) || errors.Is(err, errTooMany) || ctx.Err() != nil {
		return
	}
	s.invalidate("panic")
	s.notBefore = time.Now().Add(contain.Pause)
	if fatal := p.opts.Parts.Note("stage "+s.Name, err); fatal != nil {
		p.fatalErr = fatal
	}
}

// resetStages prepares the stages for another call to Run after a panic in the loop.
func (p *Pipeline) resetStages() {
	for _, s := range p.stages {
		s.currentPlan, s.reason = nil, "panic"
		s.status.RunningSince, s.status.RunningFull = time.Time{}, false
	}
	p.step = proxiers.Change{}
}
