package sim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/journal"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/plan"
)

// process is a running daemon with the core that daemon.Run creates, but without the sockets, the doctor, and the
// followers that change a real kernel.
type process struct {
	core       *daemon.Core
	parts      *contain.Parts
	started    time.Time
	generation string // the label of the core's goroutines
	stop       context.CancelFunc
	done       chan error
}

// start starts the daemon as systemd does. During a reload, inForce is the old core's plan.
func (s *simulation) start(inForce *plan.Plan) {
	s.setDiskAway(false)
	s.generations++
	p := &process{
		started: time.Now(), generation: fmt.Sprintf("%d-%d", s.seed, s.generations),
		done: make(chan error, 1),
	}
	logger := slog.New(&s.logs)
	p.parts = contain.New(logger)
	var err error
	p.core, err = daemon.NewCore(s.config, daemon.CoreOptions{
		Logger: logger, Families: []plan.Family{plan.IPv4, plan.IPv6}, Host: s.host, Checker: endpointcheck.New(journal.NewDamper(logger)), AppliedPlan: inForce, FullSyncInterval: s.fullSync,
		Parts: p.parts, Damper: journal.NewDamper(logger), FaultLog: daemon.NewFaultLog(logger),
		OnApplied: func(pipeline.ApplyResult) {},
		OnSynced:  func(*tracker.Snapshot, *plan.Plan, pipeline.SyncResult) {},
		Overrides: daemon.Overrides{
			Dial: s.net.dial, Lookup: s.names.lookup, NewWatcher: s.host.newWatcher,
			Convert: s.panics.hook(&s.panics.convert), Plan: s.panics.hook(&s.panics.plan),
		},
	})
	must(err)
	pipe := p.core.Pipeline()
	for _, k := range s.stages() {
		k.listen(func(reason string) { pipe.RequestFull(k.name, reason) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	pprof.Do(ctx, pprof.Labels("process", p.generation), func(ctx context.Context) {
		go func() { p.done <- p.core.Run(ctx, stage(s.kernel), stage(s.follower)) }()
	})
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
}

func stage(k *kernel) pipeline.Stage { return pipeline.Stage{Name: k.name, Applier: k} }

func (s *simulation) end() {
	p := s.process
	for _, k := range s.stages() {
		k.listen(nil)
	}
	s.mu.Lock()
	s.process = nil
	s.mu.Unlock()
	p.stop()
	if err := <-p.done; err != nil && !contain.IsPanic(err) {
		s.failf("the daemon ended with %v", err)
	}
}

// reload replaces the core in the same process, as SIGHUP does.
func (s *simulation) reload() {
	old := s.process
	inForce := old.core.Pipeline().State().AppliedPlan
	s.end()
	s.start(inForce)
	s.stoppedCores = append(s.stoppedCores, stoppedCore{old.generation, time.Now().Add(idleTimeout)})
}

// kill kills the process and closes its connections. If crash is true, the process does not save its last-known state
// before it exits.
func (s *simulation) kill(crash bool) {
	state, saved := s.config.Source.LastKnown.Directory, filepath.Join(s.dir, "crash")
	crash = crash && !s.diskAway // while the disk is away, the process cannot save its state
	if crash {
		must(os.RemoveAll(saved))
		must(os.CopyFS(saved, os.DirFS(state)))
	}
	old := s.process.generation
	s.end()
	s.net.reset()
	s.stoppedCores = append(s.stoppedCores, stoppedCore{old, time.Now().Add(idleTimeout)})
	if crash {
		must(os.RemoveAll(state))
		must(os.Rename(saved, state))
	}
}

// saveLimit is the maximum time from the commit of a change until the last-known state contains the change. After a
// failed write, the daemon tries again within 30 s.
const saveLimit = time.Minute

// rebootWithoutAPIServer cuts the host's power, and boots the host while the API server is down. The daemon must serve
// everything that it served before.
func (s *simulation) rebootWithoutAPIServer() {
	s.advance(saveLimit)
	if s.failed {
		return
	}
	s.notef("reboot without API server")
	s.api.stop()
	s.kill(true)
	for _, k := range s.stages() {
		k.removeServicePorts(1)
	}
	s.start(nil)
	var why string
	for began := time.Now(); time.Since(began) < recoveryLimit && !s.failed; s.advance(time.Second) {
		why = ""
		for _, k := range s.stages() {
			why = cmp.Or(why, k.difference(s.expected(), s.isExcusedOrBlamed))
		}
		if why == "" {
			break
		}
	}
	if why != "" {
		s.failf("after a reboot without the API server: %s", why)
	}
	s.api.start(s.addr)
	s.awaitRecovery()
}

// startUnlessDown starts the daemon, unless it must stay down or the kubeconfig is unreadable. Only an operator can
// repair an unreadable kubeconfig.
func (s *simulation) startUnlessDown() {
	if s.process == nil && !s.down && !s.unusable {
		s.start(nil)
	}
}

func simConfig(dir string) *config.Config {
	cfg := config.Default()
	cfg.Node.Name = nodeName
	cfg.Source.Kube.Kubeconfig = filepath.Join(dir, "kubeconfig")
	cfg.Source.File.Paths = []string{filepath.Join(dir, "manifests")}
	cfg.Source.LastKnown.Directory = filepath.Join(dir, "state")
	cfg.Health.Address, cfg.Metrics.Address = "", ""
	return cfg
}

// stoppedCore holds the label of a stopped core's goroutines, and the time by which all of these goroutines must have
// exited.
type stoppedCore struct {
	generation string
	until      time.Time
}

// idleTimeout is the idle timeout of net/http (http.DefaultTransport), plus the timeout of a dial that no request is
// waiting for.
const idleTimeout = 115 * time.Second

func (s *simulation) verifyStoppedCores() {
	due := func(l stoppedCore) bool { return time.Now().After(l.until) }
	if !slices.ContainsFunc(s.stoppedCores, due) {
		return
	}
	all := goroutines()
	for _, l := range s.stoppedCores {
		if due(l) && all[l.generation] != "" {
			s.failf("goroutines of the core %s are left: %s", l.generation, all[l.generation])
		}
	}
	s.stoppedCores = slices.DeleteFunc(s.stoppedCores, due)
}
