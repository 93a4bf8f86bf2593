package daemon

import (
	"context"
	"errors"
	"fmt"

	"edgeway/daemon/config"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
)

// findBackend returns the configured backend or, if this host cannot run it, proxy.fallback; unsupported then says why.
// It changes nothing.
func findBackend(ctx context.Context, cfg *config.Config) (b proxiers.Component, unsupported, err error) {
	return choose(ctx, Backends(), cfg.Proxy)
}

func choose(ctx context.Context, list []proxiers.Component,
	p config.Proxy,
) (b proxiers.Component, unsupported, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	b, err = probed(ctx, list, p.Backend)
	if !errors.Is(err, proxiers.ErrUnsupported) {
		return b, nil, err
	}
	if p.Fallback != config.FallbackNone {
		other, otherErr := probed(ctx, list, p.Fallback)
		if otherErr == nil {
			return other, err, nil
		}
		if other.Name != b.Name {
			err = fmt.Errorf("%w; nor can proxy.fallback: %w", err, otherErr)
		}
	}
	return b, nil, fmt.Errorf("%w; or set proxy.backend to one that `edgeway probe` says can run", err)
}

// probed returns the backend of this name, and an error if it cannot run here.
func probed(ctx context.Context, list []proxiers.Component, name string) (proxiers.Component, error) {
	b, err := pick(ctx, list, name)
	if err == nil {
		if err = b.Probe(ctx); err != nil {
			err = fmt.Errorf("backend %s: %w", b.Name, err)
		}
	}
	return b, err
}

// fallbackFix switches back to the configured backend.
const fallbackFix = "edgeway probe  # shows what is missing; then: edgeway reload"

// fallback returns a warning while proxy.fallback serves.
func (i *instance) fallback() []fault.Fault {
	if i.unsupported == nil {
		return nil
	}
	return []fault.Fault{{
		ID: "fallback", Severity: fault.Warning, Fix: fallbackFix,
		Message: fmt.Sprintf("The backend %s serves instead of %s, which cannot run: %v", i.component.Name,
			i.cfg.Proxy.Backend, i.unsupported),
	}}
}

func (i *instance) logFallback() {
	if i.unsupported != nil {
		i.logger.Warn("another backend serves instead of one that cannot run", "backend", i.component.Name,
			"instead_of", i.cfg.Proxy.Backend,
			"error", i.unsupported)
	}
}
