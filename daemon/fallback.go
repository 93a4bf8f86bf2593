package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/health"
	"edgeway/proxiers"
)

// instead says that another backend serves than that of the configuration, which the host may come to have what it needs for.
type instead struct {
	wanted proxiers.Component
	why    error
}

// findBackend gives the backend that is configured, if it can run here, or else what serves instead. It changes nothing.
func findBackend(ctx context.Context, cfg *config.Config) (proxiers.Component, *instead, error) {
	return choose(ctx, Backends(), cfg.Proxy)
}

func choose(ctx context.Context, list []proxiers.Component, p config.Proxy) (proxiers.Component, *instead, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	wanted, err := probed(ctx, list, p.Backend)
	if !errors.Is(err, proxiers.ErrUnsupported) {
		return wanted, nil, err
	}
	if fallsBack(wanted, p) {
		other, otherErr := probed(ctx, list, p.Fallback)
		if otherErr == nil {
			return other, &instead{wanted, err}, nil
		}
		err = fmt.Errorf("%w; nor can proxy.fallback: %w", err, otherErr)
	}
	return wanted, nil, fmt.Errorf("%w; or set proxy.backend to one that `edgeway probe` says can run", err)
}

func fallsBack(wanted proxiers.Component, p config.Proxy) bool {
	return wanted.Traits.FallsBack && p.Fallback != config.FallbackNone && p.Fallback != wanted.Name
}

// probed gives the backend of this name, and why it cannot run here.
func probed(ctx context.Context, list []proxiers.Component, name string) (proxiers.Component, error) {
	b, err := pick(ctx, list, name)
	if err == nil {
		if err = b.Probe(ctx); err != nil {
			err = fmt.Errorf("backend %s: %w", b.Name, err)
		}
	}
	return b, err
}

// fallback is the condition of a host whose backend cannot run.
func (i *instance) fallback() []health.Condition {
	if i.instead == nil {
		return nil
	}
	return []health.Condition{{
		Name: "fallback", Level: health.Warning, Mend: "edgeway probe  # shows what is missing",
		Message: fmt.Sprintf("The backend %s serves instead of %s, which cannot run: %v", i.component.Name, i.instead.wanted.Name, i.instead.why),
	}}
}

// lookAgain is how often a backend that cannot run is asked again. What is asked changes nothing.
const lookAgain = 30 * time.Second

// comeBack reloads once the backend of the configuration can run: the one that serves instead stays until that one serves.
func (i *instance) comeBack(ctx context.Context, every time.Duration) {
	if i.instead == nil {
		return
	}
	i.logger.Warn("another backend serves instead of one that cannot run", "backend", i.component.Name, "instead_of", i.instead.wanted.Name, "error", i.instead.why)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := i.instead.wanted.Probe(ctx); err != nil {
			i.logger.Debug("backend still cannot run", "backend", i.instead.wanted.Name, "error", err)
			continue
		}
		i.logger.Info("backend can run now, switching to it", "backend", i.instead.wanted.Name)
		err := i.opts.Reload(ctx)
		if err == nil {
			return
		}
		i.logger.Error("configuration not reloaded, the running one stays in force", "error", err)
	}
}
