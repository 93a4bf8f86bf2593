package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

type wanted struct {
	svc       *plan.ServicePort
	scheduler string
	// endpoints are sorted.
	endpoints []plan.Endpoint
}

// addWanted adds svc's virtual servers to the given map, and does nothing if svc is nil.
func (p *proxier) addWanted(to map[key]wanted, svc *plan.ServicePort) {
	if svc != nil && p.serves(svc.Family) {
		p.allocator.keys(svc, func(k key, list []plan.Endpoint) { to[k] = wanted{svc, p.scheduler(svc), list} })
	}
}

// wrapRefusal wraps err in a proxiers.Refusal if the ServicePort caused err.
func wrapRefusal(svc *plan.ServicePort, err error) error {
	if errors.Is(err, proxiers.ErrRefused) || errors.Is(err, errForeign) {
		return &proxiers.Refusal{Services: []*plan.ServicePort{svc}, Err: err}
	}
	return err
}

// applyPartial writes only the ServicePorts in a change, and does not read the servers from the kernel. applyPartial
// adds a server before the rules and routes that refer to it.
func (p *proxier) applyPartial(ctx context.Context, change proxiers.Change) error {
	old, next := map[key]wanted{}, map[key]wanted{}
	for _, svc := range change.Changed {
		p.addWanted(next, svc)
		p.addWanted(old, change.Prev.Find(svc.Name, svc.Family))
	}
	for _, svc := range change.Removed {
		p.addWanted(old, svc)
	}
	for k, w := range next {
		if err := errors.Join(ctx.Err(), p.ensureServer(k, w, old)); err != nil {
			return fmt.Errorf("partial sync: %w", wrapRefusal(w.svc, err))
		}
	}
	if err := p.applyTable(ctx, change); err != nil {
		return err
	}
	fresh, gone := p.watcher.replaceServers(old, next)
	if err := p.updateRoutes(change.Next.Node, fresh, gone); err != nil {
		return err
	}
	for k, w := range old {
		if err := errors.Join(ctx.Err(), p.removeSurplus(k, w, next)); err != nil {
			return fmt.Errorf("partial sync: %w", err)
		}
	}
	return nil
}

// ensureServer adds a missing server and missing endpoints, and corrects the scheduler and the weights.
func (p *proxier) ensureServer(k key, w wanted, old map[key]wanted) error {
	was, there := old[k]
	if err := validateScheduler(w.scheduler); err != nil {
		return err
	}
	if !there {
		if err := p.routes.validateAddr(k.at.Addr()); err != nil {
			return err
		}
		if err := p.kernel.addServer(k, w.scheduler); err != nil {
			return err
		}
	} else if was.scheduler != w.scheduler {
		if err := p.kernel.updateServer(k, w.scheduler); err != nil {
			return err
		}
	}
	for _, e := range w.endpoints {
		if before, there := plan.FindEndpoint(was.endpoints, e.Addr); there && weight(before) == weight(e) {
			continue
		}
		if err := p.kernel.addEndpoint(k, e); err != nil {
			return err
		}
	}
	return nil
}

// removeSurplus removes a server's surplus endpoints, or the whole server if the next plan lacks the server.
func (p *proxier) removeSurplus(k key, was wanted, next map[key]wanted) error {
	w, stays := next[k]
	if !stays {
		return p.kernel.removeServer(k)
	}
	for _, e := range was.endpoints {
		if _, stays := plan.FindEndpoint(w.endpoints, e.Addr); !stays {
			if err := p.kernel.removeEndpoint(k, e.Addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// updateRoutes adds routes to the addresses in fresh, except the host's own addresses, and removes the routes to the
// addresses in gone.
func (p *proxier) updateRoutes(node *plan.Node, fresh, gone []netip.Addr) error {
	for _, a := range fresh {
		if slices.Contains(node.HostAddrs, a) {
			continue
		}
		if err := p.routes.add(a); err != nil {
			return err
		}
	}
	for _, a := range gone {
		if err := p.routes.remove(a); err != nil {
			return err
		}
	}
	return nil
}

// applyFull makes the kernel agree with a plan, and assumes nothing about the kernel's current state.
func (p *proxier) applyFull(ctx context.Context, change proxiers.Change) error {
	if err := p.settings.applySysctls(); err != nil {
		return err
	}
	p.mu.Lock()
	*p.allocator = *allocate(change.Next)
	p.mu.Unlock()
	want := make(map[key]wanted, len(change.Next.Services))
	for _, svc := range change.Next.Services {
		p.addWanted(want, svc)
	}
	p.watcher.forget()
	have, err := p.kernel.list()
	if err != nil {
		return err
	}
	routed, err := p.routes.list()
	if err != nil {
		return err
	}
	if err := p.findConflict(want, have, routed); err != nil {
		return err
	}
	stale, err := p.ensureServers(ctx, want, have)
	if err != nil {
		return err
	}
	if err := p.writeTableAndRoutes(ctx, change, want, routed); err != nil {
		return err
	}
	p.watcher.remember(want)
	return p.removeAll(ctx, want, have, stale)
}

// findConflict returns an error if another program or another host uses a virtual server's address. The error names the
// ServicePort.
func (p *proxier) findConflict(want map[key]wanted, have map[key]found, routed map[netip.Addr]bool) error {
	checked := map[netip.Addr]bool{}
	for k, w := range want {
		if s, there := have[k]; there && !s.own && !p.watcher.hasWritten(k) {
			return wrapRefusal(w.svc, fmt.Errorf("%s/%s: %w", k.at, k.proto, errForeign))
		}
		if a := k.at.Addr(); !routed[a] && !checked[a] {
			checked[a] = true
			if err := p.routes.validateAddr(a); err != nil {
				return wrapRefusal(w.svc, err)
			}
		}
	}
	return nil
}

func (p *proxier) ensureServers(ctx context.Context, want map[key]wanted,
	have map[key]found,
) (stale map[key][]netip.AddrPort, err error) {
	stale = map[key][]netip.AddrPort{}
	for k, w := range want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, there := have[k]
		if !there {
			if err := p.ensureServer(k, w, nil); err != nil {
				return nil, wrapRefusal(w.svc, err)
			}
			continue
		}
		if err := p.reset(k, w, s); err != nil {
			return nil, wrapRefusal(w.svc, err)
		}
		endpoints, err := p.kernel.endpoints(s.raw)
		if err != nil {
			return nil, err
		}
		for _, e := range w.endpoints {
			if have, there := endpoints[e.Addr]; !there || have != weight(e) {
				if err := p.kernel.addEndpoint(k, e); err != nil {
					return nil, wrapRefusal(w.svc, err)
				}
			}
			delete(endpoints, e.Addr)
		}
		for a := range endpoints {
			stale[k] = append(stale[k], a)
		}
	}
	return stale, nil
}

// reset corrects a server's scheduler and Edgeway's mark, for example after another program has changed them.
func (p *proxier) reset(k key, w wanted, have found) error {
	if have.raw.SchedName == w.scheduler && have.own {
		return nil
	}
	if err := validateScheduler(w.scheduler); err != nil {
		return err
	}
	return p.kernel.updateServer(k, w.scheduler)
}

// writeTableAndRoutes writes the nftables table before the routes. Without the table, a route would cause the host to
// accept packets for the other ports of a Service address. Routes have no effect until a routing rule exists. If no
// routing rule exists yet, writeTableAndRoutes writes the routes first, so that adding a single rule completes a
// takeover from another backend.
func (p *proxier) writeTableAndRoutes(ctx context.Context, change proxiers.Change, want map[key]wanted,
	routed map[netip.Addr]bool,
) error {
	node := change.Next.Node
	fresh, gone := diffRoutes(node, want, routed)
	unused, err := p.routes.lacksRules()
	if err != nil {
		return err
	}
	if unused {
		if err := p.updateRoutes(node, fresh, gone); err != nil {
			return err
		}
		fresh, gone = nil, nil
	}
	if err := p.applyTable(ctx, change); err != nil {
		return err
	}
	if err := p.routes.addRules(); err != nil {
		return err
	}
	return p.updateRoutes(node, fresh, gone)
}

// diffRoutes returns the addresses that lack a route and the addresses that no longer need a route.
func diffRoutes(node *plan.Node, want map[key]wanted, routed map[netip.Addr]bool) (fresh, gone []netip.Addr) {
	addresses := map[netip.Addr]bool{}
	for k := range want {
		a := k.at.Addr()
		if !addresses[a] && !routed[a] {
			fresh = append(fresh, a)
		}
		addresses[a] = true
	}
	for a := range routed {
		if !addresses[a] || slices.Contains(node.HostAddrs, a) {
			gone = append(gone, a)
		}
	}
	return fresh, gone
}

func (p *proxier) removeAll(ctx context.Context, want map[key]wanted, have map[key]found,
	stale map[key][]netip.AddrPort,
) error {
	for k, list := range stale {
		for _, a := range list {
			if err := errors.Join(ctx.Err(), p.kernel.removeEndpoint(k, a)); err != nil {
				return err
			}
		}
	}
	for k, s := range have {
		if _, wanted := want[k]; wanted || !s.own {
			continue
		}
		if err := errors.Join(ctx.Err(), p.kernel.removeServer(k)); err != nil {
			return err
		}
	}
	return nil
}
