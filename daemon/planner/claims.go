package planner

import (
	"cmp"
	"net/netip"
	"slices"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/plan"
)

// vip is an address at which clients reach a Service.
type vip struct {
	addr netip.Addr
	kind plan.FrontendKind
	// ofHost says that it is an external IP or a load-balancer address, and an address of this host.
	ofHost bool
}

// fields are the fields of a Service that hold each kind of address.
var fields = [...]string{
	plan.ClusterIP:      "spec.clusterIPs",
	plan.ExternalIP:     "spec.externalIPs",
	plan.LoadBalancerIP: "status.loadBalancer.ingress",
}

// vips returns the addresses that the Service may have, each once with the first kind by rank, sorted by address. It
// notes the addresses that the Service may not have, and leaves out those of families that are not served.
func (p *Planner) vips(s *source.Service, found *faults) []vip {
	vips := make([]vip, 0, len(s.ClusterIPs)+len(s.LoadBalancerIPs)+len(s.ExternalIPs))
	add := func(kind plan.FrontendKind, addrs []netip.Addr) {
		for _, a := range addrs {
			if !p.env.serves(plan.FamilyOf(a)) || !hasFamily(s, plan.FamilyOf(a)) {
				continue
			}
			if why := cmp.Or(p.impostor(s, a), p.refusal(s, kind, a)); why != "" {
				found.addf(fields[kind], "%s %s", a, why)
				continue
			}
			vips = append(vips, vip{a, kind, kind != plan.ClusterIP && hasAddr(p.env.held, a)})
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

// refusal returns the reason why the Service may not have the address, and "" if it may.
//
// An address of this host needs the operator's consent: without it, an external IP, which any author of a Service
// writes, and a load-balancer address, which a controller writes, take the ports of the programs of this host. The author
// of a manifest is root. A ClusterIP is on a device of type dummy where a program binds all of them, as for IPVS.
func (p *Planner) refusal(s *source.Service, kind plan.FrontendKind, a netip.Addr) string {
	switch {
	case hasAddr(p.env.broadcasts, a):
		return "is the broadcast or network address of a network of this host"
	case hasAddr(p.env.gateways, a):
		return "is a default gateway of this host"
	case kind == plan.ClusterIP && hasAddr(p.env.real, a):
		return "is an address of this host"
	case kind == plan.ClusterIP:
		return ""
	case leadsTo(a, p.env.apiServers):
		return "is the API server's address"
	case kind == plan.ExternalIP && contains(p.env.serviceCIDRs, a):
		return "is in a range that ClusterIPs come from"
	case s.Manifest:
		return ""
	case leadsTo(a, p.env.nameServers):
		return "is a name server of this host"
	case kind == plan.LoadBalancerIP:
		return p.fence(a, p.opts.AllowLoadBalancers, p.opts.AllowHostLoadBalancers, "proxy.allow_load_balancer_ips")
	}
	return p.fence(a, p.opts.AllowExternalIPs, p.opts.AllowHostIPs, "proxy.allow_external_ips")
}

// fence returns the reason why a key of the configuration refuses an address, and "" if it does not.
func (p *Planner) fence(a netip.Addr, ranges []netip.Prefix, host bool, key string) string {
	held := hasAddr(p.env.held, a)
	switch {
	case held && !host:
		return `is an address of this host: to serve it here, add "host" to ` + key
	case !held && !contains(ranges, a):
		return "is not in a range of " + key
	}
	return ""
}

// impostor returns the reason why only the API server's own Service may have the address, and "" if any Service may.
func (p *Planner) impostor(s *source.Service, a netip.Addr) string {
	if leadsTo(a, p.env.apiServers) && (s.Namespace != "default" || s.Name != "kubernetes") {
		return "is the API server's address"
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

// claims calls f with each claim that the Service bids for.
func (p *Planner) claims(s *source.Service, f func(claim, bid)) {
	p.claimed = p.claimed[:0]
	// A panic is the Service's: service refuses it.
	_ = contain.Call(func() error {
		if p.opts.beforeClaims != nil {
			p.opts.beforeClaims(s)
		}
		p.eachClaim(s, func(c claim, b bid) { p.claimed = append(p.claimed, claimed{c, b}) })
		return nil
	})
	for _, c := range p.claimed {
		f(c.claim, c.bid)
	}
}

// claimed is a claim with the bid for it.
type claimed struct {
	claim
	bid
}

func (p *Planner) eachClaim(s *source.Service, f func(claim, bid)) {
	if p.budget.leavesOut(nameOf(s)) {
		return
	}
	vips, reachable := p.vips(s, nil), p.reachable(s)
	for i := range s.Ports {
		port := &s.Ports[i]
		for _, v := range vips {
			if p.hostPort(v, port.Protocol, port.Port) == "" {
				f(claim{v.addr, port.Protocol, port.Port}, bid{s, v.kind})
			}
		}
		if port.NodePort != 0 && reachable && p.portRefusal(s, nodePortClaim(port)) == "" {
			f(nodePortClaim(port), bid{s, plan.NodePort})
		}
	}
	if c, ok := healthCheckClaim(s); ok && p.portRefusal(s, c) == "" {
		f(c, bid{s, plan.NodePort})
	}
}

func nodePortClaim(port *source.ServicePort) claim {
	return claim{protocol: port.Protocol, port: port.NodePort}
}

// healthCheckClaim returns the claim of the healthCheckNodePort. ok is false if the Service has none, or if it is the
// Service's own NodePort.
func healthCheckClaim(s *source.Service) (c claim, ok bool) {
	c = claim{protocol: plan.TCP, port: s.HealthCheckNodePort}
	own := func(p source.ServicePort) bool { return nodePortClaim(&p) == c }
	return c, c.port != 0 && !slices.ContainsFunc(s.Ports, own)
}

// owned reports whether the Service owns the claim, and otherwise notes why it does not.
func (p *Planner) owned(s *source.Service, c claim, field string, found *faults) bool {
	if !c.addr.IsValid() {
		if why := p.portRefusal(s, c); why != "" {
			found.addf(field, "%s", why)
			return false
		}
	}
	switch owner := p.owners.owner[c].service; {
	case owner == s:
		return true
	case found.full(): // 15,000 claims of one Service can fail; their texts would take memory
		found.more++
	default:
		found.addf(field, "%s belongs to Service %s/%s", c, owner.Namespace, owner.Name)
	}
	return false
}
