package sdunit

import (
	"context"
	"log/slog"
	"sync/atomic"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// blocking is a backend whose Apply method hangs and ignores its context.
type blocking struct{ release chan struct{} }

func (b *blocking) Apply(context.Context, proxiers.Change) error {
	<-b.release
	return nil
}

// never is a HostWatcher for a host that never changes.
type never struct{}

func (never) Changed() <-chan struct{} { return nil }

// late is a source of snapshots that provides no snapshot until the test calls its serve method.
type late struct {
	changed chan struct{}
	ready   atomic.Bool
}

func (l *late) serve() {
	l.ready.Store(true)
	l.changed <- struct{}{}
}

func (l *late) Changed() <-chan struct{}            { return l.changed }
func (l *late) Snapshot() (*tracker.Snapshot, bool) { return &tracker.Snapshot{}, l.ready.Load() }

func newPipeline(logger *slog.Logger, l *late) *pipeline.Pipeline {
	return pipeline.New(pipeline.Options{
		Logger: logger, Tracker: l, Node: never{}, Checks: never{}, Parts: contain.New(logger),
		OnApplied: func(pipeline.Applied) {},
		OnSynced:  func(*tracker.Snapshot, *plan.Plan, pipeline.Synced) {},
		Plan: func(*tracker.Snapshot, *plan.Plan) (*plan.Plan, []fault.Fault) {
			return &plan.Plan{Node: &plan.Node{}}, nil
		},
	})
}
