// Package daemon assembles Edgeway's components and runs them. Objects pass through the components in this order:
// sources → tracker → planner → pipeline → backend and followers.
//
// An instance (instance.go) holds the components for one configuration. A reload replaces the instance while the kernel
// keeps forwarding connections. The type sharedComponents holds the few components that survive a reload.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/health/httpserve"
	"edgeway/daemon/journal"
	"edgeway/daemon/sdunit"
	"edgeway/daemon/source/kube"
	"edgeway/daemon/text"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

// Options holds the settings for Run that are not in the configuration file.
type Options struct {
	// ConfigPath is the path of the main configuration file.
	ConfigPath string
	// Version and Revision appear in the status and in the metrics.
	Version, Revision string
	// LogOutput receives the log.
	LogOutput io.Writer
}

// Run runs the daemon until ctx is done. The kernel keeps forwarding connections after Run returns. Run returns only
// errors that the operator must fix: the configuration is invalid at startup, another daemon is running, or the host
// cannot run the backend. If the error is a *config.Error or a *PermanentError, a restart would fail, too. SIGHUP
// reloads the configuration, but the previous configuration stays in force if the new one is invalid.
func Run(ctx context.Context, opts Options) error {
	logs := newLogSwitch(config.Default().Log, opts.LogOutput)
	logger := slog.New(logs)
	manager := sdunit.NewManager(logger)
	set, err := loadAtStart(ctx, opts.ConfigPath, manager)
	if err != nil {
		return err
	}
	logs.apply(set.cfg.Log, opts.LogOutput)
	started := time.Now()
	limitMemory(logger)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	notifier := sdunit.NewNotifier(manager, logger)
	stopping := context.AfterFunc(ctx, notifier.NotifyStopping)
	defer func() {
		if !stopping() {
			notifier.NotifyStopping() // wait until the notification has been sent
		}
	}()
	r := &reloader{path: opts.ConfigPath, next: make(chan settings, 1), notifier: notifier}
	logger.Info("edgeway starts", "version", opts.Version, "config", opts.ConfigPath, "backend", set.backend.Name)
	lock, err := control.LockNamespace()
	if err != nil {
		return err
	}
	defer lock.Close()
	parts := newShared(logger, sdunit.NewSockets(manager, sdunit.PassedFiles(), logger))
	defer parts.close()
	start := func(set settings, before appliedPlan) (*instance, error) {
		logs.apply(set.cfg.Log, opts.LogOutput)
		return newInstance(ctx, set, instanceOptions{
			Logger: logger, Version: opts.Version, Revision: opts.Revision,
			ConfigPath: opts.ConfigPath, Started: started, Reload: r.reload, AppliedPlan: before,
			Notifier: notifier, Shared: parts,
		})
	}
	inst, err := start(set, appliedPlan{})
	if err != nil {
		return err
	}
	for {
		next, err := runUntilReload(ctx, inst, r, hangup)
		if err != nil || next == nil {
			return err
		}
		before := inst.appliedPlan()
		if inst, err = start(*next, before); err == nil {
			set = *next
			logger.Info("configuration reloaded", "config", opts.ConfigPath)
			continue
		}
		logger.Error("cannot apply new configuration, restoring previous configuration",
			"message_id", messageid.ConfigurationNotStarted, "error", err)
		if inst, err = start(set, before); err != nil {
			return err
		}
	}
}

// runUntilReload runs the instance until a reload and returns the next configuration, or nil if ctx is done.
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
				inst.logger.Error("configuration not reloaded, keeping previous configuration",
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

// reloader reloads the configuration and passes it to the loop in Run.
type reloader struct {
	path     string
	next     chan settings
	notifier *sdunit.Notifier
}

// errReloading is the error that reload returns while another reload is running.
var errReloading = errors.New("another reload is running: try again later")

// reload validates the new configuration and passes it to Run. Run applies the new configuration after reload has
// returned.
func (r *reloader) reload(ctx context.Context) (err error) {
	r.notifier.NotifyReloading()
	defer func() {
		if err != nil {
			r.notifier.NotifyReloadFailed()
		}
	}()
	set, err := loadSettings(ctx, r.path)
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

// settings holds a validated configuration and the backend that it selects on this host.
type settings struct {
	cfg     *config.Config
	backend proxiers.Component
	// unsupportedErr is the reason why the configured backend cannot run, or nil if it can.
	unsupportedErr error
}

const (
	// hostTestTimeout is the time limit for testing whether the host supports a configuration. On a busy single-board
	// computer, each program that a backend runs takes seconds.
	hostTestTimeout = 5 * time.Minute
	// startTimeout is the time that the daemon asks systemd to allow for startup, which includes testing the host.
	startTimeout = hostTestTimeout + time.Minute
	// confirmDelay is the delay before the daemon reads the configuration again after a permanent error, because
	// another program may still be writing the faulty file.
	confirmDelay = 2 * time.Second
)

// loadAtStart calls loadSettings, and retries once after a permanent error.
func loadAtStart(ctx context.Context, path string, manager *sdunit.Manager) (settings, error) {
	manager.ExtendStart(startTimeout)
	set, err := loadSettings(ctx, path)
	if _, ok := errors.AsType[*PermanentError](err); !ok {
		return set, err
	}
	select {
	case <-ctx.Done():
		return set, err
	case <-time.After(confirmDelay):
		return loadSettings(ctx, path)
	}
}

// loadSettings reads the configuration and the files that it names, and tests whether this host can run the backend.
// loadSettings does not start any component.
func loadSettings(ctx context.Context, path string) (settings, error) {
	cfg, err := LoadConfig(path)
	if err != nil {
		return settings{}, err
	}
	if err := httpserve.ValidateWebConfig(cfg.Metrics.WebConfig); err != nil {
		return settings{}, webConfigError(cfg.Metrics.WebConfig, err)
	}
	if _, err = newSources(cfg, slog.New(slog.DiscardHandler), Overrides{}); err != nil {
		if fix := kube.Advice(err); fix != "" {
			err = fmt.Errorf("%w; fix: %s", err, fix)
		}
		return settings{}, err
	}
	b, unsupported, err := findBackend(ctx, cfg)
	if err != nil {
		return settings{}, err
	}
	return settings{cfg, b, unsupported}, nil
}

// PermanentError is an error that a restart cannot fix, because the operator must change a file.
type PermanentError struct{ err error }

// Error implements error.
func (p *PermanentError) Error() string { return p.err.Error() }

// Unwrap returns the wrapped error.
func (p *PermanentError) Unwrap() error { return p.err }

// markPermanent wraps an error about a file's content or permissions in a *PermanentError. markPermanent does not wrap
// other system call errors, because they may go away, for example once another program has written the file or mounted
// a disk.
func markPermanent(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok && !errors.Is(errno, fs.ErrPermission) {
		return err
	}
	return &PermanentError{err}
}

func webConfigError(path string, err error) error {
	return markPermanent(fmt.Errorf("metrics.web_config: %s: %w", path, err))
}

// logSwitch is a slog.Handler that passes records to the current configuration's handler. Components that survive a
// reload therefore log as the new configuration specifies.
type logSwitch struct {
	current *atomic.Pointer[slog.Handler]
	// addAttrs adds the attributes and groups that earlier calls to WithAttrs and WithGroup specified.
	addAttrs func(slog.Handler) slog.Handler
}

func newLogSwitch(c config.Log, w io.Writer) logSwitch {
	l := logSwitch{current: new(atomic.Pointer[slog.Handler]), addAttrs: func(h slog.Handler) slog.Handler { return h }}
	l.apply(c, w)
	return l
}

// apply applies a log configuration. If standard error is connected to the journal, text log records become journal
// entries with fields.
func (l logSwitch) apply(c config.Log, w io.Writer) {
	forPeople := &slog.HandlerOptions{Level: c.Level, ReplaceAttr: dropMessageID}
	var h slog.Handler = slog.NewTextHandler(text.CleanWriter(w), forPeople)
	switch {
	case c.Format == "json":
		h = slog.NewJSONHandler(text.CleanWriter(w), &slog.HandlerOptions{Level: c.Level})
	case w == os.Stderr && journal.IsAvailable():
		h = journal.NewHandler(c.Level, h)
	}
	l.current.Store(&h)
}

// dropMessageID removes message identifiers from text logs, because only programs need the identifiers.
func dropMessageID(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "message_id" {
		return slog.Attr{}
	}
	return a
}

// Enabled implements slog.Handler.
func (l logSwitch) Enabled(ctx context.Context, level slog.Level) bool {
	return (*l.current.Load()).Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l logSwitch) Handle(ctx context.Context, r slog.Record) error {
	return l.addAttrs(*l.current.Load()).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l logSwitch) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logSwitch{l.current, func(h slog.Handler) slog.Handler { return l.addAttrs(h).WithAttrs(attrs) }}
}

// WithGroup implements slog.Handler.
func (l logSwitch) WithGroup(name string) slog.Handler {
	return logSwitch{l.current, func(h slog.Handler) slog.Handler { return l.addAttrs(h).WithGroup(name) }}
}
