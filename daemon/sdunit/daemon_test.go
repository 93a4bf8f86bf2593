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

// blockingBackend is a backend whose Apply method hangs and ignores its context.
type blockingBackend struct{ release chan struct{} }

func (b *blockingBackend) Apply(context.Context, proxiers.Change) error {
	<-b.release
	return nil
}

// staticHost is a HostWatcher for a host that never changes.
type staticHost struct{}

func (staticHost) Changed() <-chan struct{} { return nil }

// lateSource is a source of snapshots that provides no snapshot until the test calls its serve method.
type lateSource struct {
	changed chan struct{}
	ready   atomic.Bool
}

func (l *lateSource) serve() {
	l.ready.Store(true)
	l.changed <- struct{}{}
}

func (l *lateSource) Changed() <-chan struct{}            { return l.changed }
func (l *lateSource) Snapshot() (*tracker.Snapshot, bool) { return &tracker.Snapshot{}, l.ready.Load() }

func newPipeline(logger *slog.Logger, l *lateSource) *pipeline.Pipeline {
	return pipeline.New(pipeline.Options{
		Logger: logger, Tracker: l, Node: staticHost{}, Checks: staticHost{}, Parts: contain.New(logger),
		OnApplied: func(pipeline.ApplyResult) {},
		OnSynced:  func(*tracker.Snapshot, *plan.Plan, pipeline.SyncResult) {},
		Plan: func(*tracker.Snapshot, *plan.Plan) (*plan.Plan, []fault.Fault) {
			return &plan.Plan{Node: &plan.Node{}}, nil
		},
	})
}
