package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/config"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/files"
	"edgeway/daemon/health"
	"edgeway/daemon/journal"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Core computes plans from the objects that the sources provide, and applies each plan with the backend and the
// followers. A Core holds an instance's sources, tracker, planner, pipeline and health checker. A Core needs no
// privileges and opens no sockets, so test/sim can run a Core in a testing/synctest bubble.
type Core struct {
	cfg      *config.Config
	logger   *slog.Logger
	families []plan.Family
	sources  *sources
	host     HostWatcher
	checks   *endpointChecks
	planner  *planner.Planner
	pipeline *pipeline.Pipeline
	health   *health.Checker
	parts    *contain.Parts
	lines    *journal.Damper
	services *serviceLog
	faultLog *health.FaultLog
}

// CoreOptions holds the settings for a Core that are not in the configuration file.
type CoreOptions struct {
	Logger   *slog.Logger
	Families []plan.Family
	Host     HostWatcher
	// Checker checks endpoints if the configuration enables endpoint checks.
	Checker *endpointcheck.Checker
	// Budget is the planner's memory budget. See planner.Options.
	Budget planner.Budget
	// Parts restarts components that panic.
	Parts *contain.Parts
	// Damper limits the number of log lines about changes.
	Damper   *journal.Damper
	FaultLog *health.FaultLog
	// AppliedPlan is the plan that an earlier Core of this process left in the kernel.
	AppliedPlan *plan.Plan
	// FullSyncInterval is the mean time between periodic full syncs, or 0 for the default.
	FullSyncInterval time.Duration
	OnApplied        func(pipeline.ApplyResult)
	// OnSynced runs after each successful backend sync, before Edgeway saves the objects for the next start.
	OnSynced  func(*tracker.Snapshot, *plan.Plan, pipeline.SyncResult)
	Overrides Overrides
}

// Overrides replaces source functions that make blocking system calls. If a field of Overrides is nil, the Core uses
// the real function.
type Overrides struct {
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	Lookup     func(ctx context.Context, name string) ([]netip.Addr, error)
	NewWatcher func() (*files.Watcher, error)
	// Tests set Convert and Plan to functions that panic. A source calls Convert with an object's key before it
	// converts the object. If the object comes from the last-known state, the source calls Convert after decoding the
	// object. The planner calls Plan with an object's key before it plans the object.
	Convert, Plan func(source.Key)
}

// HostWatcher watches the host's addresses. nodeinfo.Watcher implements HostWatcher.
type HostWatcher interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
	Changed() <-chan struct{}
	Host() *nodeinfo.Host
}

// NewCore reads the kubeconfig and returns a Core, but does not start it.
func NewCore(cfg *config.Config, o CoreOptions) (*Core, error) {
	c := &Core{
		cfg: cfg, logger: o.Logger, families: o.Families, host: o.Host, parts: o.Parts, lines: o.Damper,
		faultLog: o.FaultLog,
	}
	c.services = newServiceLog(o.Logger, c.lines, o.AppliedPlan)
	var err error
	if c.sources, err = newSources(cfg, o.Logger, o.Overrides); err != nil {
		return nil, err
	}
	c.sources.isReload = o.AppliedPlan != nil
	c.checks = newEndpointChecks(cfg, o.Checker)
	c.pipeline = c.newPipeline(o)
	c.health = health.New(c.pipeline, c.sources.primarySources()...)
	c.health.Ignore(cfg.Doctor.Ignore)
	if file := c.sources.file; file != nil {
		c.health.Include(file.Faults)
	}
	if kube := c.sources.kube; kube != nil {
		c.health.Include(kube.Faults)
		c.health.Include(kube.ClockFaults)
	}
	c.health.Include(c.sources.storeFaults)
	c.health.Include(c.sources.duplicateFaults)
	c.health.Include(func() []fault.Fault { return planFaults(c.pipeline.State()) })
	c.health.Include(func() []fault.Fault { return c.checks.faults(c.pipeline.State().AppliedPlan) })
	c.health.Include(c.services.unservedPortFaults)
	c.health.Include(c.removedKeyFaults)
	c.health.Include(c.parts.Faults)
	return c, nil
}

// fullSyncInterval is the mean time between periodic full syncs, which detect changes that the kernel does not report.
const fullSyncInterval = time.Hour

func (c *Core) newPipeline(o CoreOptions) *pipeline.Pipeline {
	opts := c.PlannerOptions()
	opts.BeforeService, opts.Budget = o.Overrides.Plan, o.Budget
	c.planner = planner.New(opts)
	faults := &problemLog{logger: c.logger, ignoredIDs: c.cfg.Doctor.Ignore}
	return pipeline.New(pipeline.Options{
		Logger:  c.logger,
		Tracker: c.sources.tracker,
		Node:    c.host,
		Checks:  c.checks.endpoints,
		Plan: func(snap *tracker.Snapshot, prev *plan.Plan) (*plan.Plan, []fault.Fault) {
			next, problems := c.planner.Plan(snap, c.host.Host(), prev)
			c.checks.follow(c.planner)
			faults.note(snap.Problems, problems)
			return next, problems
		},
		FullSyncInterval: cmp.Or(o.FullSyncInterval, fullSyncInterval),
		AppliedPlan:      o.AppliedPlan,
		Parts:            c.parts,
		OnApplied:        o.OnApplied,
		OnSynced: func(snap *tracker.Snapshot, p *plan.Plan, s pipeline.SyncResult) {
			c.services.logSync(snap, p, s)
			o.OnSynced(snap, p, s)
			c.sources.commit(c.planner.ContestedPorts()) // the kernel has accepted the objects
		},
	})
}

// PlannerOptions returns the options for this Core's planner.
func (c *Core) PlannerOptions() planner.Options {
	opts := plannerOptions(c.cfg, c.families, c.sources.savedOwners)
	opts.Checks = c.checks.of
	return opts
}

// starter runs a daemon component in a goroutine and restarts it after a panic.
type starter func(part string, run func(context.Context) error)

// newStarter returns a function that runs components in the group. The group stops if a component panics too often.
func (c *Core) newStarter(ctx context.Context, group *errgroup.Group) starter {
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-c.parts.Failed():
			return err
		}
	})
	return func(part string, run func(context.Context) error) {
		group.Go(func() error { return c.parts.Run(ctx, part, run) })
	}
}

func (c *Core) run(start starter, backend pipeline.Stage, followers ...pipeline.Stage) {
	start("host", c.host.Run)
	c.sources.run(start)
	c.checks.run(start)
	start("pipeline", func(ctx context.Context) error { return c.runPipeline(ctx, backend, followers) })
	start("fault log", func(ctx context.Context) error {
		c.faultLog.Run(ctx, c.health.Faults)
		return nil
	})
}

// runPipeline waits for the host's addresses and then runs the pipeline, because a plan without addresses would remove
// all NodePorts.
func (c *Core) runPipeline(ctx context.Context, backend pipeline.Stage, followers []pipeline.Stage) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.host.Ready():
	}
	return c.pipeline.Run(ctx, backend, followers...)
}

// Run runs the components until ctx is done or a component fails permanently.
func (c *Core) Run(ctx context.Context, backend pipeline.Stage, followers ...pipeline.Stage) error {
	group, ctx := errgroup.WithContext(ctx)
	c.run(c.newStarter(ctx, group), backend, followers...)
	return group.Wait()
}

// Pipeline returns the pipeline.
func (c *Core) Pipeline() *pipeline.Pipeline { return c.pipeline }

// Health returns the health checker.
func (c *Core) Health() *health.Checker { return c.health }
