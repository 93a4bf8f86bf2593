package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/health"
	"edgeway/daemon/journal"
	"edgeway/daemon/metrics"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/sdunit"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/conntrack"
	"edgeway/proxiers/contain"
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
	// AppliedPlan holds the plan that the previous instance left in the kernel, and the backend that wrote it.
	AppliedPlan appliedPlan
	Notifier    *sdunit.Notifier
	Shared      sharedComponents
}

// appliedPlan holds the plan that is in the kernel, and the backend that wrote it. appliedPlan is the zero value if
// this process has not written a plan.
type appliedPlan struct {
	plan    *plan.Plan
	backend string
}

// freeDelay is the time between a full sync and the return of the sync's memory to the system. Without
// debug.FreeOSMemory, Go 1.26 would keep the sync's memory until the next garbage collection, which an idle daemon runs
// every two minutes. With 10,000 Services, returning the memory reduces the daemon's memory use from 104 MB to 40 MB.
const freeDelay = 3 * time.Second

// gcPercent is the value of GOGC after the first sync. With 10,000 Services, gcPercent reduces the memory for
// processing changes from 88 MiB to 73 MiB. Before the first sync, Go's default of 100 shortens startup by 0.15 s.
const gcPercent = 50

// freeMemory returns memory to the system. After the first sync, freeMemory also sets GOGC to gcPercent, unless the
// environment sets GOGC.
func (i *instance) freeMemory() {
	if i.backendSynced.Load() && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	debug.FreeOSMemory()
}

// instance holds the daemon's components for one configuration. newInstance creates all components before run starts
// the first one.
type instance struct {
	*Core
	opts      instanceOptions
	node      *nodeinfo.Watcher
	component proxiers.Component
	// unsupportedErr is the reason why the configured backend cannot run, or nil if it can.
	unsupportedErr error
	// backendSynced reports whether the backend has synced. Until the backend's first sync, the kernel keeps the rules
	// of the previous plan.
	backendSynced atomic.Bool
	// stages holds the backend and its followers, in the order in which they run. closers holds the stages to close
	// together with the instance.
	stages    []pipeline.Stage
	closers   []proxiers.Proxier
	leftovers *leftoverCleaner
	monitor   *doctor.Monitor
	metrics   *metrics.Metrics
	control   *control.Server
	servers   serverFaults
	// freeTimer returns memory to the system when freeDelay has passed since the last full sync.
	freeTimer *time.Timer
}

// newInstance creates an instance. newInstance opens the control socket before changing anything, because the open
// socket prevents a second daemon from starting on the host.
func newInstance(ctx context.Context, set settings, opts instanceOptions) (*instance, error) {
	i := &instance{component: set.backend, unsupportedErr: set.unsupportedErr, opts: opts}
	i.node = nodeinfo.New(opts.Logger, hostOptions(set.cfg))
	var err error
	i.Core, err = NewCore(set.cfg, CoreOptions{
		Logger: opts.Logger, Families: families(set.cfg), Host: i.node, Checker: opts.Shared.endpoints,
		AppliedPlan: opts.AppliedPlan.plan,
		OnApplied:   func(a pipeline.ApplyResult) { i.metrics.RecordApply(a) },
		OnSynced:    i.synced,
		Parts:       opts.Shared.parts, Damper: opts.Shared.damper, FaultLog: opts.Shared.faultLog,
		Budget: budget(debug.SetMemoryLimit(-1), set.backend.Traits.Cost),
	})
	if err != nil {
		return nil, err
	}
	if i.control, err = control.Listen(i.controlOptions()); err != nil {
		return nil, err
	}
	i.freeTimer = time.AfterFunc(freeDelay, i.freeMemory)
	if err := i.assemble(ctx); err != nil {
		i.close()
		return nil, errors.Join(err, i.control.Close())
	}
	return i, nil
}

func (i *instance) assemble(ctx context.Context) error {
	logRemovedKeys(i.logger, i.cfg.RemovedKeys)
	i.logFallback()
	i.health.Include(i.shownFaults)
	i.monitor = i.newMonitor()
	i.health.Include(i.monitor.Faults)
	if err := i.newStages(ctx); err != nil {
		return err
	}
	i.health.Include(i.leftovers.faults)
	i.health.Include(i.fastPath().faults)
	i.health.Include(i.fallbackFaults)
	i.metrics = metrics.New(i.metricsOptions())
	healthy := i.health.Healthy // set last, because clients may request the health state at any time
	i.opts.Shared.healthFunc.Store(&healthy)
	return nil
}

func (i *instance) synced(snap *tracker.Snapshot, p *plan.Plan, s pipeline.SyncResult) {
	i.backendSynced.Store(true)
	i.metrics.RecordSync(snap, p, s)
	i.monitor.SignalPlan()
	if s.Full {
		i.leftovers.notifyFullSync()
		i.freeTimer.Reset(freeDelay)
	}
}

// appliedPlan returns the AppliedPlan option for the next instance.
func (i *instance) appliedPlan() appliedPlan {
	out := appliedPlan{i.pipeline.State().AppliedPlan, i.opts.AppliedPlan.backend}
	if i.backendSynced.Load() {
		out.backend = i.component.Name
	}
	return out
}

// run runs the components until ctx is done or a component fails permanently. The kernel keeps forwarding connections
// after run returns.
func (i *instance) run(ctx context.Context) error {
	defer i.close()
	if err := conntrack.RaiseMax(i.cfg.Conntrack.MaxPerCore, i.logger); err != nil {
		i.logger.Warn("cannot apply some connection tracking settings", "error", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	start := i.newStarter(ctx, group)
	always := func(part string, run func(context.Context)) {
		start(part, func(ctx context.Context) error {
			run(ctx)
			return nil
		})
	}
	i.Core.run(start, i.stages[0], i.stages[1:]...)
	always("clean-up", i.leftovers.run)
	always("doctor", i.monitor.Run)
	start("control socket", i.control.Run)
	always("service manager", func(ctx context.Context) {
		i.opts.Notifier.Run(ctx, sdunit.Subject{View: i.newView(), Heartbeat: i.pipeline.Heartbeat})
	})
	i.serve(always)
	return group.Wait()
}

func (i *instance) close() {
	i.freeTimer.Stop()
	for _, c := range i.closers {
		if err := c.Close(); err != nil {
			i.logger.Warn("component not closed", "error", err)
		}
	}
}

func (i *instance) newStages(ctx context.Context) error {
	before := i.opts.AppliedPlan.backend
	env := i.env(i.component.Name)
	env.Logger = i.logger.With("backend", i.component.Name)
	env.Takeover = before != "" && before != i.component.Name
	if err := i.newStage(ctx, i.component, env); err != nil {
		return fmt.Errorf("backend %s: %w", i.component.Name, err)
	}
	followers := followers(i.cfg, i.component, i.opts.Shared)
	for _, f := range followers {
		switch {
		case !f.enabled:
		case f.sharedProxier != nil:
			i.stages = append(i.stages, pipeline.Stage{Name: f.Name, Applier: f.sharedProxier})
		default:
			if err := i.newStage(ctx, f.Component, i.env(f.Name)); err != nil {
				return fmt.Errorf("follower %s: %w", f.Name, err)
			}
		}
	}
	i.leftovers = newLeftoverCleaner(unusedComponents(Backends(), i.component.Name, followers),
		cleanupEnv(i.cfg, i.logger), i.component.Name, before)
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
		Logger:           i.logger.With("stage", stage),
		Families:         proxiers.KernelFamilies(),
		CountConnections: i.cfg.Metrics.Services,
		MasqueradeBit:    i.cfg.Proxy.MasqueradeBit,
		Settings:         i.cfg.Settings(stage),
		Drift:            func(reason string) { i.pipeline.RequestFull(stage, reason) },
		Wake:             i.pipeline.Wake,
		Progress:         i.pipeline.Progress,
		Contain: func(part string, run func()) {
			i.parts.Loop(stage+" "+part, run, func() { i.pipeline.RequestFull(stage, "panic of "+part) })
		},
	}
}

// sharedComponents holds the components that survive a reload. The followers' listening sockets stay open while the
// next instance starts, and endpoints that failed their checks stay excluded.
type sharedComponents struct {
	loopback     *localnodeport.Proxier
	healthChecks *healthcheck.Proxier
	endpoints    *endpointcheck.Checker
	// healthFunc points to the function that returns the running instance's health.
	healthFunc *atomic.Pointer[func() bool]
	// parts counts the panics in each component.
	parts *contain.Parts
	// damper limits the number of log lines about changes.
	damper   *journal.Damper
	faultLog *health.FaultLog
}

func newShared(logger *slog.Logger, sockets localnodeport.Sockets) sharedComponents {
	lines := journal.NewDamper(logger)
	s := sharedComponents{
		healthFunc: new(atomic.Pointer[func() bool]), endpoints: endpointcheck.New(lines),
		parts: contain.New(logger), damper: lines, faultLog: NewFaultLog(logger),
	}
	s.loopback = localnodeport.New(localnodeport.Options{
		Logger: logger.With("stage", localnodeport.Name), Sockets: sockets, Contain: s.contain,
		OnPanic: func(err error) { s.parts.Record("connection to a NodePort on loopback", err) },
	})
	s.healthChecks = healthcheck.New(healthcheck.Options{
		Logger:  logger.With("stage", healthcheck.Name),
		Healthy: func() bool { return (*s.healthFunc.Load())() },
		Contain: s.contain,
	})
	return s
}

// drainTime is the maximum time that the daemon waits for existing connections to NodePorts on loopback to close. If
// systemd keeps the sockets, new connections wait for the next process.
const drainTime = 500 * time.Millisecond

func (s sharedComponents) close() {
	_ = s.healthChecks.Close() // Close never fails
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	s.loopback.Shutdown(ctx)
}

// contain runs a shared follower's goroutine and restarts it after a panic.
func (s sharedComponents) contain(part string, run func()) { s.parts.Loop(part, run, func() {}) }
