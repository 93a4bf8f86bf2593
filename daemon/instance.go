package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/daemon/health/httpserve"
	"edgeway/daemon/metrics"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/sdunit"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/conntrack"
	"edgeway/proxiers/healthcheck"
	"edgeway/proxiers/localnodeport"
	"edgeway/proxiers/plan"
)

type instanceOptions struct {
	Logger            *slog.Logger
	Version, Revision string
	ConfigPath        string
	Started           time.Time
	Reload            func(context.Context) error
	// InForce is what the instance before this one left in the kernel; nil: it is the first.
	InForce *plan.Plan
	// Before is the backend of the instance before this one; empty: it is the first.
	Before string
	// Notifier and Loopback outlive the instance: like the kernel, NodePorts on loopback go on as they are
	// while the next instance starts.
	Notifier *sdunit.Notifier
	Loopback *localnodeport.Proxier
}

// instance is the daemon with one configuration. Its parts are all made before any of them runs.
type instance struct {
	cfg      *config.Config
	opts     instanceOptions
	logger   *slog.Logger
	families []plan.Family
	sources  *sources
	node     *nodeinfo.Watcher
	planner  *planner.Planner
	pipeline *pipeline.Pipeline
	backend  proxiers.Proxier
	// leftovers are those of other backends.
	leftovers *leftovers
	health    *health.Checker
	metrics   *metrics.Metrics
	control   *control.Server
	// Followers of the backend, in the order they run.
	followers []pipeline.Stage
	closers   []proxiers.Proxier
}

// newInstance takes the control socket first: it keeps two daemons off one host.
func newInstance(ctx context.Context, cfg *config.Config, opts instanceOptions) (*instance, error) {
	i := &instance{cfg: cfg, opts: opts, logger: opts.Logger, families: families(cfg)}
	var err error
	if i.control, err = control.Listen(i.controlOptions()); err != nil {
		return nil, err
	}
	if err := i.assemble(ctx); err != nil {
		i.close()
		return nil, errors.Join(err, i.control.Close())
	}
	return i, nil
}

func (i *instance) assemble(ctx context.Context) error {
	var err error
	if i.sources, err = newSources(i.cfg, i.logger); err != nil {
		return err
	}
	i.node = nodeinfo.New(i.logger, foreignDevices()...)
	i.pipeline = i.newPipeline()
	i.health = health.New(i.pipeline, i.healthSources()...)
	i.metrics = metrics.New(i.metricsOptions())
	if err := i.newBackend(ctx); err != nil {
		return err
	}
	i.newFollowers()
	return nil
}

func (i *instance) newPipeline() *pipeline.Pipeline {
	i.planner = planner.New(plannerOptions(i.cfg, i.families, i.sources.held))
	faults := &problemLog{logger: i.logger}
	return pipeline.New(pipeline.Options{
		Logger:  i.logger,
		Tracker: i.sources.tracker,
		Node:    i.node,
		Plan: func(snap *tracker.Snapshot, prev *plan.Plan) (*plan.Plan, []source.Problem) {
			next, problems := i.planner.Plan(snap, i.node.Host(), prev)
			faults.note(snap.Problems, problems)
			return next, problems
		},
		MinSync:   i.cfg.Proxy.MinSyncPeriod,
		FullSync:  i.cfg.Proxy.FullSyncPeriod,
		InForce:   i.opts.InForce,
		OnApplied: func(a pipeline.Applied) { i.metrics.Applied(a) },
		OnSynced:  i.synced,
	})
}

// synced runs after each sync of the backend that succeeded: only what the kernel took is worth
// starting from the next time.
func (i *instance) synced(snap *tracker.Snapshot, p *plan.Plan, s pipeline.Synced) {
	i.metrics.Synced(snap, p, s)
	if i.sources.saved != nil {
		i.sources.saved.Commit(i.planner.Contested())
	}
	if s.Full {
		i.leftovers.noteFull()
		time.AfterFunc(memoryRest, debug.FreeOSMemory)
	}
}

// memoryRest is when the memory that a full sync needed is given back, lists read at the start included.
// Go alone (1.26) keeps it until a collection that an idle daemon runs every two minutes: 104 MB
// instead of 40 MB at 10,000 Services.
const memoryRest = 3 * time.Second

func (i *instance) newBackend(ctx context.Context) error {
	b, err := backend(i.cfg.Proxy.Backend)
	if err != nil {
		return err
	}
	opts := proxiers.Options{
		Logger:        i.logger.With("backend", b.Name),
		MasqueradeBit: i.cfg.Proxy.MasqueradeBit,
		Takeover:      i.opts.Before != "" && i.opts.Before != b.Name,
		Drift:         i.pipeline.RequestFull,
		Progress:      i.pipeline.Progress,
	}
	if i.backend, err = b.New(ctx, opts); err != nil {
		return fmt.Errorf("backend %s: %w", b.Name, err)
	}
	i.closers = append(i.closers, i.backend)
	actual, err := actualBackend(b, i.backend)
	if err != nil {
		return fmt.Errorf("backend %s: %w", b.Name, err)
	}
	i.leftovers = newLeftovers(others(Backends(), actual), b.Name, i.opts.Before)
	i.leftovers.logger, i.leftovers.options = i.logger, cleanupOptions(i.cfg, i.logger)
	i.health.Include(i.leftovers.conditions)
	return nil
}

func (i *instance) newFollowers() {
	follow := func(name string, p proxiers.Proxier) {
		i.followers = append(i.followers, pipeline.Stage{Name: name, Applier: p})
		i.closers = append(i.closers, p)
	}
	if i.cfg.Conntrack.Cleanup {
		follow("conntrack", conntrack.New(conntrack.Options{
			Logger: i.logger.With("stage", "conntrack"), Cleaned: i.metrics.ConntrackCleaned,
		}))
	}
	i.opts.Loopback.SetLogger(i.logger.With("stage", "localnodeport"))
	i.followers = append(i.followers, pipeline.Stage{Name: "localnodeport", Applier: i.opts.Loopback})
	follow("healthcheck", healthcheck.New(healthcheck.Options{
		Logger: i.logger.With("stage", "healthcheck"), Healthy: i.health.Healthy, BindFailed: i.metrics.HealthCheckBindFailed,
	}))
}

// run serves until ctx ends or a part fails for good. The kernel goes on forwarding afterwards.
func (i *instance) run(ctx context.Context) error {
	defer i.close()
	if err := conntrack.ApplySysctls(sysctlSettings(i.cfg.Conntrack), i.logger); err != nil {
		i.logger.Warn("connection tracking keeps some of the kernel's settings", "error", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return i.node.Run(ctx) })
	i.sources.run(ctx, group.Go)
	group.Go(func() error { return i.runPipeline(ctx) })
	group.Go(func() error {
		i.leftovers.run(ctx)
		return nil
	})
	group.Go(func() error { return i.control.Run(ctx) })
	group.Go(func() error {
		i.opts.Notifier.Run(ctx, sdunit.Subject{View: i.view, Heartbeat: i.pipeline.Heartbeat})
		return nil
	})
	i.serve(ctx, group)
	return group.Wait()
}

// runPipeline waits for the host's addresses: a plan without them would take the NodePorts away.
func (i *instance) runPipeline(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-i.node.Ready():
	}
	return i.pipeline.Run(ctx, pipeline.Stage{Name: i.cfg.Proxy.Backend, Applier: i.backend}, i.followers...)
}

func (i *instance) serve(ctx context.Context, group *errgroup.Group) {
	start := func(s httpserve.Server) {
		s.Logger = i.logger
		group.Go(func() error {
			s.Run(ctx)
			return nil
		})
	}
	if addr := i.cfg.Health.Address; addr != "" {
		start(httpserve.Server{
			Name: "health", Addr: addr,
			Handler: i.health.Handler(health.HandlerOptions{Families: i.families, Answered: i.metrics.HealthAnswered}),
		})
	}
	if addr := i.cfg.Metrics.Address; addr != "" {
		start(httpserve.Server{
			Name: "metrics", Addr: addr, WebConfig: i.cfg.Metrics.WebConfig,
			Handler: i.metrics.Handler(metrics.HandlerOptions{
				Config: func() string { return config.Dump(i.cfg) }, Pprof: i.cfg.Metrics.Pprof,
			}),
		})
	}
}

func (i *instance) close() {
	for _, c := range i.closers {
		if err := c.Close(); err != nil {
			i.logger.Warn("part did not close", "error", err)
		}
	}
}
