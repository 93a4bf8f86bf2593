package planner

import (
	"net/netip"
	"slices"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// vip is an address that a Service is to be reached at.
type vip struct {
	addr netip.Addr
	kind plan.FrontendKind
}

// ranks order the kinds where a Service lists one address twice. A load-balancer address comes before
// the same external IP, because its source ranges must hold.
var ranks = [...]int{plan.ClusterIP: 0, plan.LoadBalancerIP: 1, plan.ExternalIP: 2}

// fields are where the kinds stand in a Service.
var fields = [...]string{
	plan.ClusterIP:      "spec.clusterIPs",
	plan.ExternalIP:     "spec.externalIPs",
	plan.LoadBalancerIP: "status.loadBalancer.ingress",
}

// vips gives the addresses that the Service may have, each once, sorted by address, and notes those that it
// may not have. Addresses of families that are not served are left out silently.
func (p *Planner) vips(s *source.Service, found *faults) []vip {
	vips := make([]vip, 0, len(s.ClusterIPs)+len(s.LoadBalancerIPs)+len(s.ExternalIPs))
	add := func(kind plan.FrontendKind, addrs []netip.Addr) {
		for _, a := range addrs {
			if !p.env.serves(plan.FamilyOf(a)) || !hasFamily(s, plan.FamilyOf(a)) {
				continue
			}
			if why := p.refusal(kind, a); why != "" {
				found.addf(fields[kind], "%s %s", a, why)
				continue
			}
			vips = append(vips, vip{a, kind})
		}
	}
	add(plan.ClusterIP, s.ClusterIPs)
	add(plan.LoadBalancerIP, s.LoadBalancerIPs)
	add(plan.ExternalIP, s.ExternalIPs)
	slices.SortFunc(vips, func(a, b vip) int {
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		return ranks[a.kind] - ranks[b.kind]
	})
	return slices.CompactFunc(vips, func(a, b vip) bool { return a.addr == b.addr })
}

// refusal says in words why the Service may not have the address; empty: it may.
//
// A load-balancer address may be the host's: only controllers write the status, and on a host that answers for the
// address itself it is on an interface. An external IP is what anybody may write who may write Services. A ClusterIP
// is on a device of type dummy where somebody binds all of them, as for IPVS.
func (p *Planner) refusal(kind plan.FrontendKind, a netip.Addr) string {
	switch {
	case hasAddr(p.env.broadcasts, a):
		return "is the broadcast or network address of a network of this host"
	case hasAddr(p.env.gateways, a):
		return "is a default gateway of this host"
	case kind == plan.ClusterIP && hasAddr(p.env.real, a):
		return "is an address of this host"
	case kind == plan.ClusterIP:
		return ""
	case hasAddr(p.env.apiServers, a):
		return "is the API server's address"
	case kind == plan.LoadBalancerIP:
		if !contains(p.opts.AllowLoadBalancers, a) {
			return "is not in a range of proxy.allow_load_balancer_ips"
		}
	case hasAddr(p.env.held, a):
		if !p.opts.AllowHostIPs {
			return `is an address of this host: to serve it here, add "host" to proxy.allow_external_ips`
		}
	case !contains(p.opts.AllowExternalIPs, a):
		return "is not in a range of proxy.allow_external_ips"
	}
	return ""
}

// hasFamily reports whether the Service exists in the family: it has a ClusterIP of it.
func hasFamily(s *source.Service, f plan.Family) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool { return plan.FamilyOf(a) == f })
}

// reachable reports whether the Service exists in a family that is served. One that does not needs no NodePort.
func (p *Planner) reachable(s *source.Service) bool {
	return slices.ContainsFunc(p.env.families, func(f plan.Family) bool { return hasFamily(s, f) })
}

// claims calls f with all that the Service wants to be the only one to have.
func (p *Planner) claims(s *source.Service, f func(claim)) {
	vips := p.vips(s, nil)
	if p.excess(s, vips) != "" {
		return
	}
	reachable := p.reachable(s)
	for i := range s.Ports {
		port := &s.Ports[i]
		for _, v := range vips {
			f(claim{v.addr, port.Protocol, port.Port})
		}
		if port.NodePort != 0 && reachable && p.portRefusal(nodePortClaim(port)) == "" {
			f(nodePortClaim(port))
		}
	}
	if c, ok := healthCheckClaim(s); ok && p.portRefusal(c) == "" {
		f(c)
	}
}

func (p *Planner) portRefusal(c claim) string {
	if p.opts.PortRefusal == nil {
		return ""
	}
	return p.opts.PortRefusal(c.protocol, c.port)
}

func nodePortClaim(port *source.ServicePort) claim {
	return claim{protocol: port.Protocol, port: port.NodePort}
}

// healthCheckClaim is false without a healthCheckNodePort, and for one that is the Service's own NodePort.
func healthCheckClaim(s *source.Service) (c claim, ok bool) {
	c = claim{protocol: plan.TCP, port: s.HealthCheckNodePort}
	own := func(p source.ServicePort) bool { return nodePortClaim(&p) == c }
	return c, c.port != 0 && !slices.ContainsFunc(s.Ports, own)
}

// owned reports whether the Service has the claim, and says why it has not.
func (p *Planner) owned(s *source.Service, c claim, field string, found *faults) bool {
	if !c.addr.IsValid() {
		if why := p.portRefusal(c); why != "" {
			found.addf(field, "%s", why)
			return false
		}
	}
	switch owner := p.owners.owner[c]; owner {
	case s:
		return true
	case programs:
		found.addf(field, "%s is in use on this host by another program (%s): it is served when that no longer listens", c, p.listening[c])
	default:
		found.addf(field, "%s belongs to Service %s/%s", c, owner.Namespace, owner.Name)
	}
	return false
}
