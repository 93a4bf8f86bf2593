package planner

import (
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// hostPort returns the reason why no Service gets a port of the address, and "" if one may. At an address of this host,
// the rules of a frontend come before the listeners of the host: a load balancer would get an endpoint's answer where it
// asks for the health of this host.
func (p *Planner) hostPort(v vip, protocol plan.Protocol, port uint16) string {
	if !v.ofHost || protocol != plan.TCP {
		return ""
	}
	const at = "%s is an address of this host, where port %d is "
	switch key := p.opts.OwnPorts[port]; {
	case key != "":
		return fmt.Sprintf(at+"that of %s", v.addr, port, key)
	case slices.Contains(p.env.apiPorts, port):
		return fmt.Sprintf(at+"the API server's", v.addr, port)
	case p.health.ports[port] > 0:
		return fmt.Sprintf(at+"a health check port", v.addr, port)
	}
	return ""
}

// healthPorts knows the health check ports, and which Services lose such a port of this host.
type healthPorts struct {
	// ports counts the Services of each health check port.
	ports map[uint16]int
	// atHost are the Services with an external IP or a load-balancer address that is this host's.
	atHost map[tracker.Name]struct{}
}

func newHealthPorts() healthPorts {
	return healthPorts{map[uint16]int{}, map[tracker.Name]struct{}{}}
}

// enter adds a Service, or removes it if by is -1.
func (p *Planner) enter(s *source.Service, by int) {
	if port := p.healthPort(s); port != 0 {
		add(p.health.ports, port, by)
	}
	p.enterOutside(s, by)
	held := func(vips []netip.Addr) bool {
		return slices.ContainsFunc(vips, func(a netip.Addr) bool { return hasAddr(p.env.held, a) })
	}
	if by < 0 {
		delete(p.health.atHost, nameOf(s))
	} else if held(s.ExternalIPs) || held(s.LoadBalancerIPs) {
		p.health.atHost[nameOf(s)] = struct{}{}
	}
}

// healthPort returns the health check port of a Service, and 0 if it has none.
func (p *Planner) healthPort(s *source.Service) uint16 {
	if c, ok := healthCheckClaim(s); ok && p.portRefusal(s, c) == "" {
		return c.port
	}
	return 0
}

// besides returns the Services that lose or get a port of this host's addresses because the Services that changed bring
// a health check port or take one away.
func (p *Planner) besides(snap *tracker.Snapshot) (names []tracker.Name) {
	if len(p.health.atHost) == 0 {
		return nil
	}
	change := map[uint16]int{}
	for _, name := range snap.Changed {
		if old := specOf(p.snap, name); old != nil {
			change[p.healthPort(old)]--
		}
		if fresh := specOf(snap, name); fresh != nil {
			change[p.healthPort(fresh)]++
		}
	}
	delete(change, 0)
	toggles := func(port source.ServicePort) bool {
		count := p.health.ports[port.Port]
		return (count > 0) != (count+change[port.Port] > 0)
	}
	for name := range p.health.atHost {
		s := specOf(snap, name)
		if s != nil && s == specOf(p.snap, name) && slices.ContainsFunc(s.Ports, toggles) {
			names = append(names, name)
		}
	}
	return names
}
