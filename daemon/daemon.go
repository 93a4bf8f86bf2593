// Package daemon assembles the parts of Edgeway and runs them. It imports all other packages.
//
//	sources → tracker → planner → pipeline → backend and followers
//
// An instance (instance.go) holds the parts for one configuration. A reload replaces the instance, and the kernel
// forwards meanwhile. The few parts that outlive a reload are in shared.go.
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
	"edgeway/daemon/control"
	"edgeway/daemon/sdunit"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

// Options configure Run, beside the configuration file.
type Options struct {
	// ConfigPath is the main configuration file.
	ConfigPath string
	// Version and Revision appear in status and metrics.
	Version, Revision string
	// LogOutput receives the log.
	LogOutput io.Writer
}

// Run serves until ctx ends, and leaves the kernel forwarding. It returns an error that only the operator can fix: an
// invalid configuration at the start, a second daemon, a host that cannot run the backend. After a *config.Error or a
// *Permanent, another start would fail too. SIGHUP reloads the configuration. If the new one is invalid, the previous
// one stays in force.
func Run(ctx context.Context, opts Options) error {
	logs := newLogSwitch(config.Default().Log, opts.LogOutput) // until the configuration is loaded
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
	lock, err := control.LockNamespace()
	if err != nil {
		return err
	}
	defer lock.Close()
	parts := newShared(logger, sdunit.NewSockets(manager, sdunit.Passed(), logger))
	defer parts.close()
	start := func(set settings, before inForce) (*instance, error) {
		logs.use(set.cfg.Log, opts.LogOutput)
		return newInstance(ctx, set, instanceOptions{
			Logger: logger, Version: opts.Version, Revision: opts.Revision,
			ConfigPath: opts.ConfigPath, Started: started, Reload: r.reload, InForce: before,
			Notifier: notifier, Shared: parts,
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

// runUntilReload runs the instance. It returns the next configuration, or nil when ctx has ended.
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

// reloader loads the configuration again and passes it to the loop of Run.
type reloader struct {
	path     string
	next     chan settings
	notifier *sdunit.Notifier
}

// errReloading is the error of a reload during another one.
var errReloading = errors.New("another reload is running, try again later")

// reload returns when the new configuration has been checked. It is in force a moment later.
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
