package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"edgeway/daemon/config"
	"edgeway/proxiers"
	"edgeway/proxiers/conntrack"
	"edgeway/proxiers/ebpf"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/flowtable"
	"edgeway/proxiers/healthcheck"
	"edgeway/proxiers/iptables"
	"edgeway/proxiers/ipvs"
	"edgeway/proxiers/localnodeport"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/proxiers/serviceroutes"
)

// Backends returns all backends. To add a backend, create a package below proxiers and add its Component to this
// function.
func Backends() []proxiers.Component {
	out := append([]proxiers.Component{nftables.Component()}, iptables.Components()...)
	return append(out, ipvs.Component(), ebpf.Component())
}

// follower is a Component that runs after the backend.
type follower struct {
	proxiers.Component
	// enabled reports whether the configuration enables the follower. Edgeway removes a disabled follower's rules.
	enabled bool
	// sharedProxier is the Proxier that survives a reload, or nil if each reload creates a new Proxier.
	sharedProxier proxiers.Proxier
}

// followers returns all followers in the order in which they run. To add a follower, create a package below proxiers
// and add an entry to this function.
func followers(cfg *config.Config, backend proxiers.Component, s sharedComponents) []follower {
	return []follower{
		{
			Component: serviceroutes.Component(cfg.Routes.Services == config.RoutesAlways, ignoredRouteTables()),
			enabled:   cfg.Routes.Services != config.RoutesNever,
		},
		{Component: conntrack.Component(), enabled: true},
		// The flowtable follower runs after the conntrack follower, so the kernel's flowtable never holds a flow whose
		// conntrack entry Edgeway has deleted.
		{
			Component: flowtable.Component(sharedTables()),
			enabled:   cfg.FastPath.Enabled && backend.Traits.NoFastPathReason == "",
		},
		{Component: proxiers.Component{Name: localnodeport.Name}, enabled: true, sharedProxier: s.loopback},
		{Component: proxiers.Component{Name: healthcheck.Name}, enabled: true, sharedProxier: s.healthChecks},
	}
}

// sharedTables returns the nftables tables that Edgeway's backends share with other programs.
func sharedTables() (out []proxiers.SharedTable) {
	for _, b := range Backends() {
		out = append(out, b.Traits.SharedTables...)
	}
	return out
}

// resolveBackend returns the backend with the given name or, if the name is an alias, the backend that the alias
// selects.
func resolveBackend(ctx context.Context, list []proxiers.Component, name string) (proxiers.Component, error) {
	i := slices.IndexFunc(list, func(c proxiers.Component) bool { return c.Name == name })
	if i < 0 {
		return proxiers.Component{}, fmt.Errorf("proxy.backend: backend %q does not exist", name)
	}
	if list[i].Resolve == nil {
		return list[i], nil
	}
	actual, err := list[i].Resolve(ctx)
	if err != nil {
		return proxiers.Component{}, fmt.Errorf("backend %s: %w", name, err)
	}
	return resolveBackend(ctx, list, actual)
}

// gapFunc returns a function that lists, for a ServicePort, the features that the backend or an enabled follower does
// not implement as the plan specifies.
func gapFunc(backend proxiers.Component, followers []follower) func(*plan.ServicePort) []proxiers.Gap {
	components := []proxiers.Component{backend}
	for _, f := range followers {
		if f.enabled {
			components = append(components, f.Component)
		}
	}
	return func(svc *plan.ServicePort) (out []proxiers.Gap) {
		for _, c := range components {
			if c.Gaps != nil {
				out = append(out, c.Gaps(svc)...)
			}
		}
		return out
	}
}

// unusedComponents returns the Components that are not in use but may have left rules on the host: the disabled
// followers, and all backends except the given one.
func unusedComponents(backends []proxiers.Component, backend string, followers []follower) []proxiers.Component {
	var out []proxiers.Component
	for _, b := range backends {
		if b.Cleanup != nil && b.Name != backend {
			out = append(out, b)
		}
	}
	for _, f := range followers {
		if f.Cleanup != nil && !f.enabled {
			out = append(out, f.Component)
		}
	}
	return out
}

// LoadBPF loads the ebpf backend's programs and maps. The daemon itself lacks the privileges to load BPF programs.
func LoadBPF(cfg *config.Config, logger *slog.Logger) error {
	env := cleanupEnv(cfg, logger.With("component", ebpf.Name))
	env.Settings = cfg.Settings(ebpf.Name)
	return ebpf.Prepare(env)
}

// ignoredRouteTables returns the routing tables that the backends create. The host's own packets never use the
// backends' routing tables.
func ignoredRouteTables() []int { return []int{ipvs.RouteTable} }

// findBackend returns the configured backend or, if this host cannot run it, the backend that proxy.fallback names.
// unsupported is the reason why the configured backend cannot run, or nil if it can. findBackend changes nothing.
func findBackend(ctx context.Context, cfg *config.Config) (b proxiers.Component, unsupported, err error) {
	return choose(ctx, Backends(), cfg.Proxy)
}

func choose(ctx context.Context, list []proxiers.Component,
	p config.Proxy,
) (b proxiers.Component, unsupported, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostTestTimeout)
	defer cancel()
	b, err = probeBackend(ctx, list, p.Backend)
	if !errors.Is(err, proxiers.ErrUnsupported) {
		return b, nil, err
	}
	if p.Fallback != config.FallbackNone {
		other, otherErr := probeBackend(ctx, list, p.Fallback)
		if otherErr == nil {
			return other, err, nil
		}
		if other.Name != b.Name {
			err = fmt.Errorf("%w; this host cannot run the backend in proxy.fallback either: %w", err, otherErr)
		}
	}
	return b, nil, fmt.Errorf("%w; or set proxy.backend to a backend that this host can run (see `edgeway "+
		"probe`)", err)
}

func probeBackend(ctx context.Context, list []proxiers.Component, name string) (proxiers.Component, error) {
	b, err := resolveBackend(ctx, list, name)
	if err == nil {
		if err = b.Probe(ctx); err != nil {
			err = fmt.Errorf("backend %s: %w", b.Name, err)
		}
	}
	return b, err
}

// fallbackFix contains the commands for returning to the configured backend.
const fallbackFix = "edgeway probe  # shows the missing features; then run edgeway reload"

// fallbackFaults returns a warning while the proxy.fallback backend replaces the configured backend.
func (i *instance) fallbackFaults() []fault.Fault {
	if i.unsupportedErr == nil {
		return nil
	}
	return []fault.Fault{{
		ID: "fallback", Severity: fault.Warning, Fix: fallbackFix,
		Message: fmt.Sprintf("Edgeway uses the backend %s, because this host cannot run %s: %v", i.component.Name,
			i.cfg.Proxy.Backend, i.unsupportedErr),
	}}
}

func (i *instance) logFallback() {
	if i.unsupportedErr != nil {
		i.logger.Warn("configured backend cannot run, using fallback backend", "backend", i.component.Name,
			"instead_of", i.cfg.Proxy.Backend,
			"error", i.unsupportedErr)
	}
}

// ProbeResult is the result of probing one backend on this host.
type ProbeResult struct {
	Backend string
	// Err names the missing features, or is nil if the backend can run.
	Err error
	// Faults reports the optional features that are missing.
	Faults []fault.Fault
}

// Probe tests which backends this host can run, and changes nothing.
func Probe(ctx context.Context, cfg *config.Config) []ProbeResult {
	var out []ProbeResult
	for _, b := range Backends() {
		p := ProbeResult{Backend: b.Name}
		var actual proxiers.Component
		if actual, p.Err = resolveBackend(ctx, Backends(), b.Name); p.Err == nil {
			p.Err = actual.Probe(ctx)
		}
		if p.Err == nil && actual.Faults != nil {
			p.Faults = actual.Faults(cfg.Settings(actual.Name), []plan.Family{plan.IPv4, plan.IPv6})
		}
		out = append(out, p)
	}
	return out
}
