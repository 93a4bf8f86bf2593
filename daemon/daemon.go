// Package daemon puts the parts together and runs them: it is the only package that knows all the
// others.
//
//	sources → tracker → planner → pipeline → backend and followers
//
// An instance (instance.go) is all of that for one configuration. A reload makes a new instance of the
// new configuration; the kernel goes on forwarding in between.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/exporter-toolkit/web"

	"edgeway/daemon/config"
	"edgeway/daemon/journal"
	"edgeway/daemon/sdunit"
	"edgeway/proxiers/localnodeport"
	"edgeway/proxiers/plan"
)

// Options are what Run needs beside the configuration.
type Options struct {
	// ConfigPath is the main configuration file.
	ConfigPath string
	// Version and Revision are shown by status and metrics.
	Version, Revision string
	// LogOutput is where the log goes.
	LogOutput io.Writer
}

// Run serves until ctx ends, and leaves the kernel forwarding. It returns an error for what only the
// operator can mend: a wrong configuration at the start, a second daemon, a host that cannot run the
// backend. SIGHUP reloads the configuration; a wrong one is refused, and the old one stays in force.
func Run(ctx context.Context, opts Options) error {
	cfg, err := loadAndCheck(ctx, opts.ConfigPath)
	if err != nil {
		return err
	}
	started := time.Now()
	logger := newLogger(cfg.Log, opts.LogOutput)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	manager := sdunit.NewManager(logger)
	notifier := sdunit.NewNotifier(manager, logger)
	stopping := context.AfterFunc(ctx, notifier.Stopping)
	defer func() {
		if !stopping() {
			notifier.Stopping() // returns when it is said
		}
	}()
	r := &reloader{path: opts.ConfigPath, next: make(chan *config.Config, 1), notifier: notifier}
	logger.Info("edgeway starts", "version", opts.Version, "config", opts.ConfigPath, "backend", cfg.Proxy.Backend)
	loopback := localnodeport.New(localnodeport.Options{
		Logger: logger, Sockets: sdunit.NewSockets(manager, activation.Files(true), logger),
	})
	defer drain(loopback)
	start := func(cfg *config.Config, inForce *plan.Plan, before string) (*instance, error) {
		return newInstance(ctx, cfg, instanceOptions{
			Logger: newLogger(cfg.Log, opts.LogOutput), Version: opts.Version, Revision: opts.Revision,
			ConfigPath: opts.ConfigPath, Started: started, Reload: r.reload, InForce: inForce, Before: before,
			Notifier: notifier, Loopback: loopback,
		})
	}
	inst, err := start(cfg, nil, "")
	if err != nil {
		return err
	}
	for {
		next, err := runUntilReload(ctx, inst, r, hangup)
		if err != nil || next == nil {
			return err
		}
		inForce := inst.pipeline.State().InForce
		if inst, err = start(next, inForce, cfg.Proxy.Backend); err == nil {
			cfg = next
			inst.logger.Info("configuration reloaded", "config", opts.ConfigPath)
			continue
		}
		logger.Error("new configuration does not start, going back to the one before", "error", err)
		if inst, err = start(cfg, inForce, ""); err != nil {
			return err
		}
	}
}

// drainTime is how long connections to NodePorts on loopback may take to end. New ones wait meanwhile,
// for the next process, when there is a service manager that keeps their sockets.
const drainTime = 500 * time.Millisecond

func drain(loopback *localnodeport.Proxier) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	loopback.Shutdown(ctx)
}

// runUntilReload gives the configuration to go on with; nil when ctx has ended.
func runUntilReload(ctx context.Context, inst *instance, r *reloader, hangup <-chan os.Signal) (*config.Config, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- inst.run(ctx) }()
	for {
		select {
		case err := <-done:
			return nil, err
		case <-hangup:
			if err := r.reload(ctx); err != nil {
				inst.logger.Error("configuration not reloaded, the running one stays in force", "error", err)
			}
		case next := <-r.next:
			cancel()
			if err := <-done; err != nil {
				return nil, err
			}
			return next, nil
		}
	}
}

// reloader reads the configuration again and hands it to the loop of Run.
type reloader struct {
	path     string
	next     chan *config.Config
	notifier *sdunit.Notifier
}

// errReloading says that a reload is already under way.
var errReloading = errors.New("another reload is under way")

// reload returns once the new configuration is known to be good; it is in force a moment later.
func (r *reloader) reload(ctx context.Context) (err error) {
	r.notifier.Reloading()
	defer func() {
		if err != nil {
			r.notifier.NotReloaded()
		}
	}()
	cfg, err := loadAndCheck(ctx, r.path)
	if err != nil {
		return err
	}
	select {
	case r.next <- cfg:
		return nil
	default:
		return errReloading
	}
}

// loadAndCheck also finds what a configuration that is valid in itself asks for in vain, without
// starting anything.
func loadAndCheck(ctx context.Context, path string) (*config.Config, error) {
	cfg, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	b, err := backend(cfg.Proxy.Backend)
	if err != nil {
		return nil, err
	}
	if err := b.Probe(ctx); err != nil {
		return nil, fmt.Errorf("backend %s: %w", b.Name, err)
	}
	if err := web.Validate(cfg.Metrics.WebConfig); err != nil {
		return nil, fmt.Errorf("metrics.web_config: %s: %w", cfg.Metrics.WebConfig, err)
	}
	_, err = newSources(cfg, slog.New(slog.DiscardHandler))
	return cfg, err
}

// newLogger writes text with fields where the journal takes them, unless JSON is asked for.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if w == os.Stderr && journal.Wanted() {
		h = journal.NewHandler(c.Level, h)
	}
	return slog.New(h)
}
