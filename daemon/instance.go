package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/health"
	"edgeway/daemon/health/httpserve"
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
	// InForce is what the instance before this one left in the kernel.
	InForce  inForce
	Notifier *sdunit.Notifier
	Lasting  lasting
}

// inForce is a plan in the kernel and the backend that put it there; zero: nothing was put there by this process.
type inForce struct {
	plan    *plan.Plan
	backend string
}

// freeDelay is the time from a full sync until its memory is returned. Go (1.26) keeps it until a collection that an idle
// daemon runs every two minutes: 104 MB instead of 40 MB at 10,000 Services.
const freeDelay = 3 * time.Second

// instance is the daemon with one configuration. Its parts are all made before any of them runs.
type instance struct {
	*Core
	cfg    *config.Config
	opts   instanceOptions
	logger *slog.Logger
	node   *nodeinfo.Watcher
	// component is the backend's.
	component proxiers.Component
	// unsupported is why the configured backend cannot run, while proxy.fallback serves.
	unsupported error
	// served says that the backend has synced. Until then the previous plan is in force.
	served    atomic.Bool
	leftovers *leftovers
	rounds    *doctor.Rounds
	unserved  unserved
	// free returns memory to the system some time after a full sync.
	free    *time.Timer
	metrics *metrics.Metrics
	control *control.Server
	// stages are the backend and its followers, in the order they run. Those in closers end with the instance.
	stages  []pipeline.Stage
	closers []proxiers.Proxier
}

// newInstance takes the control socket first: it prevents a second daemon on one host.
func newInstance(ctx context.Context, set settings, opts instanceOptions) (*instance, error) {
	i := &instance{cfg: set.cfg, component: set.backend, unsupported: set.unsupported, opts: opts, logger: opts.Logger}
	i.free = time.AfterFunc(freeDelay, debug.FreeOSMemory)
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
	logRemovedKeys(i.logger, i.cfg.Removed)
	i.logFallback()
	i.node = nodeinfo.New(i.logger, ofProxies())
	i.Core, err = NewCore(i.cfg, CoreOptions{
		Logger: i.logger, Families: families(i.cfg), Host: i.node, Checker: i.opts.Lasting.endpoints, InForce: i.opts.InForce.plan,
		Applied: func(a pipeline.Applied) { i.metrics.Applied(a) },
		Synced:  i.synced,
		Parts:   i.opts.Lasting.parts,
	})
	if err != nil {
		return err
	}
	i.health.Include(func() []health.Condition { return portConditions(i.waiting(), i.unserved.waiting()) }, "ports")
	i.rounds = i.newRounds()
	i.health.Include(i.problems, checkNames()...)
	if err := i.newStages(ctx); err != nil {
		return err
	}
	i.health.Include(i.fastPath().conditions, "fast-path")
	i.health.Include(i.shortcutCondition, "shortcut")
	i.health.Include(i.fallback, "fallback")
	i.metrics = metrics.New(i.metricsOptions())
	healthy := i.health.Healthy // of a complete instance: clients ask at any time
	i.opts.Lasting.healthy.Store(&healthy)
	return nil
}

// synced runs after each successful sync of the backend.
func (i *instance) synced(snap *tracker.Snapshot, p *plan.Plan, s pipeline.Synced) {
	i.served.Store(true)
	i.metrics.Synced(snap, p, s)
	i.rounds.Planned()
	if s.Full {
		i.leftovers.noteFull()
	}
	if s.Full {
		i.free.Reset(freeDelay)
	}
}

// newStages makes the backend and its followers.
func (i *instance) newStages(ctx context.Context) error {
	before := i.opts.InForce.backend
	env := i.env(i.component.Name)
	env.Logger = i.logger.With("backend", i.component.Name)
	env.Takeover = before != "" && before != i.component.Name
	if err := i.newStage(ctx, i.component, env); err != nil {
		return fmt.Errorf("backend %s: %w", i.component.Name, err)
	}
	followers := followers(i.cfg, i.component, i.opts.Lasting)
	for _, f := range followers {
		switch {
		case !f.on:
		case f.lasting != nil:
			i.stages = append(i.stages, pipeline.Stage{Name: f.Name, Applier: f.lasting})
		default:
			if err := i.newStage(ctx, f.Component, i.env(f.Name)); err != nil {
				return fmt.Errorf("follower %s: %w", f.Name, err)
			}
		}
	}
	i.leftovers = newLeftovers(unused(Backends(), i.component.Name, followers), cleanupEnv(i.cfg, i.logger), i.component.Name, before)
	i.health.Include(i.leftovers.conditions, "leftovers")
	return nil
}

func (i *instance) newStage(ctx context.Context, c proxiers.Component, env proxiers.Env) error {
	p, err := c.New(ctx, env)
	if err != nil {
		return err
	}
	i.stages = append(i.stages, pipeline.Stage{Name: c.Name, Applier: p})
	i.closers = append(i.closers, p)
	return nil
}

func (i *instance) env(stage string) proxiers.Env {
	return proxiers.Env{
		Logger:        i.logger.With("stage", stage),
		Families:      kernelFamilies(),
		MasqueradeBit: i.cfg.Proxy.MasqueradeBit,
		ProgramsOnly:  i.cfg.Nftables.Netlink == config.NetlinkOff,
		Settings:      i.cfg.Settings(stage),
		Drift:         func(reason string) { i.pipeline.RequestFull(stage, reason) },
		Wake:          i.pipeline.Wake,
		Progress:      i.pipeline.Progress,
		Contain: func(part string, run func()) {
			i.parts.Loop(stage+" "+part, run, func() { i.pipeline.RequestFull(stage, "panic of "+part) })
		},
	}
}

// inForce is what this instance leaves to the next one.
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
	if err := conntrack.ApplySysctls(sysctlSettings(i.cfg.Conntrack), i.logger); err != nil {
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

func (i *instance) serve(always func(part string, run func(context.Context))) {
	start := func(s httpserve.Server) {
		s.Logger = i.logger
		s.Handler = i.answering(s.Name+" server", s.Handler)
		s.Down = func(err error) { i.unserved.note(s.Name+".address", s.Addr, err) }
		always(s.Name+" server", s.Run)
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
				HasUsers: func() bool { return httpserve.HasUsers(i.cfg.Metrics.WebConfig) },
			}),
		})
	}
}

func (i *instance) close() {
	i.free.Stop()
	for _, c := range i.closers {
		if err := c.Close(); err != nil {
			i.logger.Warn("component not closed", "error", err)
		}
	}
}
