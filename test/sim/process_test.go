package sim

import (
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
	"edgeway/daemon/pipeline"
	"edgeway/proxiers/plan"
)

// process is the daemon while it runs: its core as daemon.Run makes it, without sockets, doctor and followers.
type process struct {
	core       *daemon.Core
	started    time.Time
	generation string // the label of its goroutines
	stop       context.CancelFunc
	done       chan error
}

// start starts the daemon as systemd does. A reload hands over what is in force.
func (s *simulation) start(inForce *plan.Plan) {
	s.generations++
	p := &process{started: time.Now(), generation: fmt.Sprintf("%d-%d", s.seed, s.generations), done: make(chan error, 1)}
	logger := slog.New(&s.logs)
	var err error
	p.core, err = daemon.NewCore(s.config, daemon.CoreOptions{
		Logger: logger, Families: []plan.Family{plan.IPv4, plan.IPv6}, Host: s.host, Checker: endpointcheck.New(logger), InForce: inForce,
		Outside: daemon.Outside{Dial: s.net.dial, NewWatcher: s.host.newWatcher},
	})
	must(err)
	pipe := p.core.Pipeline()
	s.kernel.mu.Lock()
	s.kernel.drift = func(reason string) { pipe.RequestFull("fake", reason) }
	s.kernel.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	pprof.Do(ctx, pprof.Labels("process", p.generation), func(ctx context.Context) {
		go func() { p.done <- p.core.Run(ctx, pipeline.Stage{Name: "fake", Applier: s.kernel}) }()
	})
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
}

// end ends the daemon, with SIGTERM.
func (s *simulation) end() {
	p := s.process
	s.kernel.mu.Lock()
	s.kernel.drift = nil
	s.kernel.mu.Unlock()
	s.mu.Lock()
	s.process = nil
	s.mu.Unlock()
	p.stop()
	if err := <-p.done; err != nil {
		s.failf("the daemon ended with %v", err)
	}
}

// reload is SIGHUP: another core of the same process. No connection of the old one may stay for long.
func (s *simulation) reload() {
	old := s.process
	inForce := old.core.Pipeline().State().InForce
	s.end()
	s.start(inForce)
	s.left = append(s.left, leftover{old.generation, time.Now().Add(idleTimeout)})
}

// restart ends the process, and starts another one after a while. Its connections go with it.
func (s *simulation) restart(pause time.Duration, crash bool) {
	var saved string
	if crash {
		saved = s.dir + "/crash"
		must(os.RemoveAll(saved))
		must(os.CopyFS(saved, os.DirFS(s.config.Source.LastKnown.Directory)))
	}
	old := s.process.generation
	s.end()
	s.net.reset()
	s.left = append(s.left, leftover{old, time.Now().Add(idleTimeout)})
	if crash { // what a process that was killed has not written
		must(os.RemoveAll(s.config.Source.LastKnown.Directory))
		must(os.Rename(saved, s.config.Source.LastKnown.Directory))
	}
	time.Sleep(pause)
	s.start(nil)
}

// simConfig is the configuration of a host with both sources.
func simConfig(dir string) *config.Config {
	cfg := config.Default()
	cfg.Node.Name = nodeName
	cfg.Source.Kube.Kubeconfig = filepath.Join(dir, "kubeconfig")
	cfg.Source.File.Paths = []string{filepath.Join(dir, "manifests")}
	cfg.Source.LastKnown.Directory = filepath.Join(dir, "state")
	cfg.Health.Address, cfg.Metrics.Address = "", ""
	return cfg
}

// leftover is a core whose goroutines must be gone at a time.
type leftover struct {
	generation string
	until      time.Time
}

// idleTimeout is how long net/http keeps an idle connection (http.DefaultTransport), and the time of a dial that nobody waits for.
const idleTimeout = 115 * time.Second

// checkLeft looks for goroutines of cores that have ended.
func (s *simulation) checkLeft() {
	due := func(l leftover) bool { return time.Now().After(l.until) }
	if !slices.ContainsFunc(s.left, due) {
		return
	}
	all := goroutines()
	for _, l := range s.left {
		if due(l) && all[l.generation] != "" {
			s.failf("goroutines of the core %s are left: %s", l.generation, all[l.generation])
		}
	}
	s.left = slices.DeleteFunc(s.left, due)
}
