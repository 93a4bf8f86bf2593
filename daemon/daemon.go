// Package daemon assembles the parts and runs them. It is the only package that imports all the
// others.
//
//	sources → tracker → planner → pipeline → backend and followers
//
// An instance (instance.go) is all of that for one configuration. A reload makes a new instance of the
// new configuration; the kernel keeps forwarding in between.
package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/health/httpserve"
	"edgeway/daemon/sdunit"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

// Options are what Run needs beside the configuration.
type Options struct {
	// ConfigPath is the main configuration file.
	ConfigPath string
	// Version and Revision are shown by status and metrics.
	Version, Revision string
	// LogOutput is where the log goes.
	LogOutput io.Writer
	// RelayLoops gives relay.Options.Loops when the relay for NodePorts on loopback is needed first; nil: the relay's own default.
	RelayLoops func() int
}

// Run serves until ctx ends, and leaves the kernel forwarding. It returns an error for what only the
// operator can fix: an invalid configuration at the start, a second daemon, a host that cannot run the
// backend. After a *config.Error or a *Permanent another start would fail too. SIGHUP reloads the configuration; Run
// refuses an invalid one and keeps the previous one in force.
func Run(ctx context.Context, opts Options) error {
	logs := newLogSwitch(config.Default().Log, opts.LogOutput) // until the configuration is known
	logger := slog.New(logs)
	manager := sdunit.NewManager(logger)
	set, err := loadAtStart(ctx, opts.ConfigPath, manager)
	if err != nil {
		return err
	}
	logs.use(set.cfg.Log, opts.LogOutput)
	started := time.Now()
	limitMemory(logger)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	notifier := sdunit.NewNotifier(manager, logger)
	stopping := context.AfterFunc(ctx, notifier.Stopping)
	defer func() {
		if !stopping() {
			notifier.Stopping() // returns when it is sent
		}
	}()
	r := &reloader{path: opts.ConfigPath, next: make(chan settings, 1), notifier: notifier}
	logger.Info("edgeway starts", "version", opts.Version, "config", opts.ConfigPath, "backend", set.backend.Name)
	lasting := newLasting(logger, sdunit.NewSockets(manager, sdunit.Passed(), logger), opts.RelayLoops)
	defer lasting.close()
	start := func(set settings, before inForce) (*instance, error) {
		logs.use(set.cfg.Log, opts.LogOutput)
		return newInstance(ctx, set, instanceOptions{
			Logger: logger, Version: opts.Version, Revision: opts.Revision,
			ConfigPath: opts.ConfigPath, Started: started, Reload: r.reload, InForce: before,
			Notifier: notifier, Lasting: lasting,
		})
	}
	inst, err := start(set, inForce{})
	if err != nil {
		return err
	}
	for {
		next, err := runUntilReload(ctx, inst, r, hangup)
		if err != nil || next == nil {
			return err
		}
		before := inst.inForce()
		if inst, err = start(*next, before); err == nil {
			set = *next
			logger.Info("configuration reloaded", "config", opts.ConfigPath)
			continue
		}
		logger.Error("new configuration does not start, going back to the previous one",
			"message_id", messageid.ConfigurationNotStarted, "error", err)
		if inst, err = start(set, before); err != nil {
			return err
		}
	}
}

// runUntilReload gives the configuration to continue with; nil when ctx has ended.
func runUntilReload(ctx context.Context, inst *instance, r *reloader, hangup <-chan os.Signal) (*settings, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- contain.Call(func() error { return inst.run(ctx) }) }()
	for {
		select {
		case err := <-done:
			return nil, err
		case <-hangup:
			if err := r.reload(ctx); err != nil {
				inst.logger.Error("configuration not reloaded, the running one stays in force",
					"message_id", messageid.ConfigurationNotReloaded, "error", err)
			}
		case next := <-r.next:
			cancel()
			if err := <-done; err != nil {
				return nil, err
			}
			return &next, nil
		}
	}
}

// reloader reads the configuration again and hands it to the loop of Run.
type reloader struct {
	path     string
	next     chan settings
	notifier *sdunit.Notifier
}

// errReloading says that another reload is running.
var errReloading = errors.New("another reload is running, try again later")

// reload returns once the new configuration is known to be good; it is in force a moment later.
func (r *reloader) reload(ctx context.Context) (err error) {
	r.notifier.Reloading()
	defer func() {
		if err != nil {
			r.notifier.NotReloaded()
		}
	}()
	set, err := loadAndCheck(ctx, r.path)
	if err != nil {
		return err
	}
	select {
	case r.next <- set:
		return nil
	default:
		return errReloading
	}
}

// settings are a configuration that was checked, and the backend that it selects on this host.
type settings struct {
	cfg     *config.Config
	backend proxiers.Component
	// unsupported is why the configured backend cannot run, if backend is proxy.fallback.
	unsupported error
}

// loadAndCheck also finds what a valid configuration asks for and this host does not have, without
// starting anything: files first, as they need nothing to be run.
func loadAndCheck(ctx context.Context, path string) (settings, error) {
	cfg, err := LoadConfig(path)
	if err != nil {
		return settings{}, err
	}
	if err := httpserve.CheckWebConfig(cfg.Metrics.WebConfig); err != nil {
		return settings{}, webConfigError(cfg.Metrics.WebConfig, err)
	}
	if _, err = newSources(cfg, slog.New(slog.DiscardHandler), Outside{}); err != nil {
		return settings{}, err
	}
	b, unsupported, err := findBackend(ctx, cfg)
	if err != nil {
		return settings{}, err
	}
	return settings{cfg, b, unsupported}, nil
}

const (
	// checkTimeout bounds the check whether the host has what a configuration needs. A busy board takes seconds to run
	// each program of a backend.
	checkTimeout = 5 * time.Minute
	// startTimeout bounds the time for which the service manager is asked to wait for that check at the start.
	startTimeout = checkTimeout + time.Minute
)
