package planner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// Checks selects the endpoints to check and provides the check results. The zero value selects no endpoint.
//
// The planner treats a dead endpoint as not ready while another endpoint of the same port responds. If no endpoint
// responds, all endpoints stay in use, because the network path that the checks use may be at fault. If no endpoint on
// this host responds, the local pool keeps the dead endpoints. The local endpoint counts that health check ports report
// exclude dead endpoints, so load balancers use other hosts. Edgeway does not check endpoints that are not ready.
type Checks struct {
	// Manifests enables the checks of endpoints from manifests, and API enables the checks of endpoints from the API
	// server.
	Manifests, API bool
	// DeadEndpoints returns the endpoints that do not respond. Each call to Plan calls DeadEndpoints. DeadEndpoints may
	// be nil.
	DeadEndpoints func() *endpointcheck.DeadEndpoints
}

func (c *Checks) dead() *endpointcheck.DeadEndpoints {
	if c.DeadEndpoints == nil {
		return nil
	}
	return c.DeadEndpoints()
}

func (c *Checks) include(s *source.EndpointSlice) bool {
	if s.Manifest {
		return c.Manifests
	}
	return c.API
}

// DescribeDead describes each dead endpoint of a ServicePort: why it is dead, and whether the plan still uses it.
func (c *Checks) DescribeDead(svc *tracker.Service, sp *plan.ServicePort) (out []string) {
	dead := c.dead()
	if dead.Len() == 0 {
		return nil
	}
	texts := map[netip.AddrPort]string{}
	for _, s := range svc.Slices {
		for _, port := range s.Ports {
			if s.Family != sp.Family || port.Name != sp.Name.Port || port.Protocol != sp.Name.Protocol ||
				!c.include(s) {
				continue
			}
			for i := range s.Endpoints {
				at := netip.AddrPortFrom(s.Endpoints[i].Addr, port.Port)
				if why := reason(s, at, port.Protocol, dead); why != "" && s.Endpoints[i].Ready {
					texts[at] = fmt.Sprintf("%s does not answer %s", at, why)
					if chosen(sp, at) {
						texts[at] += "; the endpoint stays in use if no other endpoint responds"
					}
				}
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(texts), netip.AddrPort.Compare) {
		out = append(out, texts[at])
	}
	return out
}

// reason describes why an endpoint is dead and, for a TCP endpoint, since when. reason returns "" if the endpoint
// responds.
func reason(
	s *source.EndpointSlice, at netip.AddrPort, protocol plan.Protocol, dead *endpointcheck.DeadEndpoints,
) string {
	if protocol == plan.TCP {
		if !dead.Has(at) {
			return ""
		}
		f := dead.Faults[at]
		return fmt.Sprintf("since %s: %s", f.Since.Format(time.RFC3339), f.Message)
	}
	if allPortsDead(s, at.Addr(), dead, func(netip.AddrPort) bool { return true }) {
		return "at any of its TCP ports"
	}
	return ""
}

func chosen(sp *plan.ServicePort, at netip.AddrPort) bool {
	for _, pool := range sp.Pools {
		if _, found := plan.FindEndpoint(pool, at); found {
			return true
		}
	}
	return false
}

// allPortsDead reports whether Edgeway checks any TCP ports of the slice at the address, and all of these ports are
// dead.
func allPortsDead(
	s *source.EndpointSlice, a netip.Addr, dead *endpointcheck.DeadEndpoints, checked func(netip.AddrPort) bool,
) bool {
	found := false
	for _, port := range s.Ports {
		at := netip.AddrPortFrom(a, port.Port)
		if port.Protocol != plan.TCP || !checked(at) {
			continue
		}
		if !dead.Has(at) {
			return false
		}
		found = true
	}
	return found
}

// targets returns the ready endpoints of a Service's TCP ports, sorted.
func (p *Planner) targets(planned []*plan.ServicePort, b backends) (out []netip.AddrPort) {
	if !p.opts.Checks.Manifests && !p.opts.Checks.API {
		return nil
	}
	for _, sp := range planned {
		if sp.Name.Protocol != plan.TCP {
			continue
		}
		for _, c := range b[keyOf(sp)] {
			if !p.opts.Checks.include(c.slice) {
				continue
			}
			for i := range c.slice.Endpoints {
				if e := &c.slice.Endpoints[i]; e.Ready {
					out = append(out, netip.AddrPortFrom(e.Addr, c.port))
				}
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// isDead reports whether an endpoint of the current Service does not respond. Edgeway cannot check a UDP or SCTP
// endpoint, so the result depends on the TCP ports in the endpoint's slice.
func (p *Planner) isDead(c candidates, e *source.Endpoint, protocol plan.Protocol) bool {
	switch {
	case p.dead.Len() == 0 || !e.Ready || !p.opts.Checks.include(c.slice):
		return false
	case protocol == plan.TCP:
		return p.dead.Has(netip.AddrPortFrom(e.Addr, c.port))
	}
	return p.isUnresponsive(c.slice, e)
}

// isUnresponsive reports whether Edgeway checks any TCP ports of the endpoint, and none of these ports responds.
func (p *Planner) isUnresponsive(s *source.EndpointSlice, e *source.Endpoint) bool {
	if p.dead.Len() == 0 || !p.opts.Checks.include(s) {
		return false
	}
	return allPortsDead(s, e.Addr, p.dead, func(at netip.AddrPort) bool { return hasAddrPort(p.checked, at) })
}

// checkIndex maps checked endpoints to Services. When an endpoint dies, the Planner replans only the Services that use
// it.
type checkIndex struct {
	services map[netip.AddrPort][]tracker.Name
	targets  map[tracker.Name][]netip.AddrPort
	// changedEndpoints holds the endpoints whose Services have changed since the last call to checkIndex.take. The
	// map's value reports whether the endpoint had a Service before the change.
	changedEndpoints map[netip.AddrPort]bool
	all              bool
}

func newCheckIndex() checkIndex {
	return checkIndex{
		services: map[netip.AddrPort][]tracker.Name{}, targets: map[tracker.Name][]netip.AddrPort{},
		changedEndpoints: map[netip.AddrPort]bool{}, all: true,
	}
}

func (x *checkIndex) set(name tracker.Name, fresh []netip.AddrPort) {
	old := x.targets[name]
	if slices.Equal(old, fresh) {
		return
	}
	for _, at := range except(old, fresh) {
		x.touch(at)
		if rest := slices.DeleteFunc(x.services[at], func(n tracker.Name) bool { return n == name }); len(rest) > 0 {
			x.services[at] = rest
		} else {
			delete(x.services, at)
		}
	}
	for _, at := range except(fresh, old) {
		x.touch(at)
		x.services[at] = append(x.services[at], name)
	}
	if len(fresh) == 0 {
		delete(x.targets, name)
	} else {
		x.targets[name] = fresh
	}
}

func except(list, sorted []netip.AddrPort) (out []netip.AddrPort) {
	for _, at := range list {
		if !hasAddrPort(sorted, at) {
			out = append(out, at)
		}
	}
	return out
}

func hasAddrPort(sorted []netip.AddrPort, at netip.AddrPort) bool {
	_, has := slices.BinarySearchFunc(sorted, at, netip.AddrPort.Compare)
	return has
}

func (x *checkIndex) touch(at netip.AddrPort) {
	if _, known := x.changedEndpoints[at]; !known {
		_, had := x.services[at]
		x.changedEndpoints[at] = had
	}
}

func (x *checkIndex) take() endpointcheck.Targets {
	out := endpointcheck.Targets{All: x.all}
	for at, had := range x.changedEndpoints {
		switch _, has := x.services[at]; {
		case has && !had:
			out.Add = append(out.Add, at)
		case had && !has:
			out.Drop = append(out.Drop, at)
		}
	}
	x.changedEndpoints, x.all = map[netip.AddrPort]bool{}, false
	return out
}

func (x *checkIndex) concerned(list []netip.AddrPort) (names []tracker.Name) {
	for _, at := range list {
		names = append(names, x.services[at]...)
	}
	return names
}
