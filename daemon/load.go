package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/health/httpserve"
	"edgeway/daemon/sdunit"
	"edgeway/proxiers"
)

// settings are a configuration that was checked, and the backend that it selects on this host.
type settings struct {
	cfg     *config.Config
	backend proxiers.Component
	// unsupported is why the configured backend cannot run, if backend is proxy.fallback.
	unsupported error
}

const (
	// checkTimeout bounds the check whether the host has what a configuration needs. A busy board takes seconds to run
	// each program of a backend.
	checkTimeout = 5 * time.Minute
	// startTimeout bounds the time that the service manager is asked to wait for that check at the start.
	startTimeout = checkTimeout + time.Minute
	// secondLook is the delay before a permanent error is confirmed, because a program may just be writing the file.
	secondLook = 2 * time.Second
)

// loadAtStart calls loadAndCheck, and calls it again after a permanent error. The service manager waits meanwhile.
func loadAtStart(ctx context.Context, path string, manager *sdunit.Manager) (settings, error) {
	defer manager.ExtendStart(ctx, startTimeout)()
	set, err := loadAndCheck(ctx, path)
	if _, ok := errors.AsType[*Permanent](err); !ok {
		return set, err
	}
	select {
	case <-ctx.Done():
		return set, err
	case <-time.After(secondLook):
		return loadAndCheck(ctx, path)
	}
}

// loadAndCheck reads the configuration and the files that it names, and tests whether this host can run the backend. It
// starts nothing.
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

// Permanent is an error that no restart fixes: the operator must change a file.
type Permanent struct{ err error }

// Error implements error.
func (p *Permanent) Error() string { return p.err.Error() }

// Unwrap returns the error itself.
func (p *Permanent) Unwrap() error { return p.err }

// permanent marks an error in the content or the permissions of a file. Other errors of system calls may go away:
// another program still has to write the file, or a disk comes back.
func permanent(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok && !errors.Is(errno, fs.ErrPermission) {
		return err
	}
	return &Permanent{err}
}

// webConfigError marks an error of metrics.web_config.
func webConfigError(path string, err error) error {
	return permanent(fmt.Errorf("metrics.web_config: %s: %w", path, err))
}
