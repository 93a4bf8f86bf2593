package daemon

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/metrics"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/sdunit"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/conntrack"
	"edgeway/proxiers/plan"
)

type instanceOptions struct {
	Logger            *slog.Logger
	Version, Revision string
	ConfigPath        string
	Started           time.Time
	Reload            func(context.Context) error
	// InForce is what the previous instance left in the kernel.
	InForce  inForce
	Notifier *sdunit.Notifier
	Shared   shared
}

// inForce is a plan in the kernel and the backend that wrote it. It is zero if this process has written none.
type inForce struct {
	plan    *plan.Plan
	backend string
}

// freeDelay is the time from a full sync until its memory is returned. Go (1.26) keeps it until a collection that an
// idle daemon runs every two minutes: 104 MB instead of 40 MB at 10,000 Services.
const freeDelay = 3 * time.Second

// instance is the daemon with one configuration. newInstance creates all of its parts before run starts one.
type instance struct {
	*Core
	opts      instanceOptions
	node      *nodeinfo.Watcher
	component proxiers.Component // of the backend
	// unsupported is why the configured backend cannot run, while proxy.fallback serves.
	unsupported error
	// served reports that the backend has synced. Until then the previous plan is in force.
	served atomic.Bool
	// stages are the backend and its followers, in the order in which they run. Those in closers end with the instance.
	stages    []pipeline.Stage
	closers   []proxiers.Proxier
	leftovers *leftovers
	rounds    *doctor.Rounds
	metrics   *metrics.Metrics
	control   *control.Server
	servers   servers
	// free returns memory to the system freeDelay after a full sync.
	free *time.Timer
}

// newInstance takes the control socket before it changes anything: the socket prevents a second daemon on one host.
func newInstance(ctx context.Context, set settings, opts instanceOptions) (*instance, error) {
	i := &instance{component: set.backend, unsupported: set.unsupported, opts: opts}
	i.node = nodeinfo.New(opts.Logger, hostOptions(set.cfg))
	var err error
	i.Core, err = NewCore(set.cfg, CoreOptions{
		Logger: opts.Logger, Families: families(set.cfg), Host: i.node, Checker: opts.Shared.endpoints,
		InForce: opts.InForce.plan,
		Applied: func(a pipeline.Applied) { i.metrics.Applied(a) },
		Synced:  i.synced,
		Parts:   opts.Shared.parts, Lines: opts.Shared.lines, FaultLog: opts.Shared.faultLog,
		Budget: budget(debug.SetMemoryLimit(-1), set.backend.Traits.Cost),
	})
	if err != nil {
		return nil, err
	}
	if i.control, err = control.Listen(i.controlOptions()); err != nil {
		return nil, err
	}
	i.free = time.AfterFunc(freeDelay, debug.FreeOSMemory)
	if err := i.assemble(ctx); err != nil {
		i.close()
		return nil, errors.Join(err, i.control.Close())
	}
	return i, nil
}

func (i *instance) assemble(ctx context.Context) error {
	logRemovedKeys(i.logger, i.cfg.Removed)
	i.logFallback()
	i.health.Include(i.shownFaults, proxiers.PortFault, "shortcut")
	i.rounds = i.newRounds()
	i.health.Include(i.rounds.Faults, checkNames()...)
	if err := i.newStages(ctx); err != nil {
		return err
	}
	i.health.Include(i.leftovers.faults, "leftovers")
	i.health.Include(i.fastPath().faults, proxiers.FastPathFault)
	i.health.Include(i.fallback, "fallback")
	i.metrics = metrics.New(i.metricsOptions())
	healthy := i.health.Healthy // of a complete instance: clients ask at any time
	i.opts.Shared.healthy.Store(&healthy)
	return nil
}

// synced runs after each successful sync of the backend.
func (i *instance) synced(snap *tracker.Snapshot, p *plan.Plan, s pipeline.Synced) {
	i.served.Store(true)
	i.metrics.Synced(snap, p, s)
	i.rounds.Planned()
	if s.Full {
		i.leftovers.noteFull()
		i.free.Reset(freeDelay)
	}
}

// inForce returns what this instance leaves to the next one.
func (i *instance) inForce() inForce {
	out := inForce{i.pipeline.State().InForce, i.opts.InForce.backend}
	if i.served.Load() {
		out.backend = i.component.Name
	}
	return out
}

// run serves until ctx ends or a part fails permanently. The kernel keeps forwarding afterwards.
func (i *instance) run(ctx context.Context) error {
	defer i.close()
	if err := conntrack.RaiseMax(i.cfg.Conntrack.MaxPerCore, i.logger); err != nil {
		i.logger.Warn("some connection tracking settings not applied", "error", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	start := i.starter(ctx, group)
	always := func(part string, run func(context.Context)) {
		start(part, func(ctx context.Context) error {
			run(ctx)
			return nil
		})
	}
	i.Core.run(start, i.stages[0], i.stages[1:]...)
	always("clean-up", i.leftovers.run)
	always("rounds", i.rounds.Run)
	start("control socket", i.control.Run)
	always("service manager", func(ctx context.Context) {
		i.opts.Notifier.Run(ctx, sdunit.Subject{View: i.view, Heartbeat: i.pipeline.Heartbeat})
	})
	i.serve(always)
	return group.Wait()
}

func (i *instance) close() {
	i.free.Stop()
	for _, c := range i.closers {
		if err := c.Close(); err != nil {
			i.logger.Warn("component not closed", "error", err)
		}
	}
}
