package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Packet is the first packet of a connection.
type Packet struct {
	Protocol Protocol
	Src      netip.Addr
	Dst      netip.AddrPort
	// InInterface is the interface that received the packet, or "" if this host sent it.
	InInterface string
}

// Decision is the verdict for a packet, with the reason.
type Decision struct {
	Verdict Verdict
	Origin  Origin
	// Service and Frontend are nil if no frontend matched.
	Service  *ServicePort
	Frontend *Frontend
	// Endpoints holds the endpoints in Pool. Pool and Endpoints are meaningful only if the verdict is Forward.
	Pool      Pool
	Endpoints []Endpoint
	// SNAT reports whether the backend must masquerade the connection regardless of the endpoint. SNATFor also covers
	// hairpins.
	SNAT bool
	// Reason explains the verdict in one sentence.
	Reason string
}

// SNATFor reports whether the backend must masquerade a connection from src to e. The backend must masquerade the
// connection if SNAT is true, or if e is a local endpoint that connects to itself through its Service (a hairpin).
func (d Decision) SNATFor(src netip.Addr, e Endpoint) bool {
	return d.SNAT || e.Local && e.Addr.Addr() == src
}

// Origin returns a packet's origin. Pods take precedence over the host, because a pod never has one of the host's
// addresses.
func (n *Node) Origin(src netip.Addr, inInterface string) Origin {
	for _, p := range n.PodSources {
		if p.Contains(src) {
			return FromPod
		}
	}
	if inInterface != "" {
		for _, pattern := range n.PodInterfaces {
			if MatchInterface(pattern, inInterface) {
				return FromPod
			}
		}
	}
	if inInterface == "" || slices.Contains(n.HostAddrs, src) {
		return FromHost
	}
	return FromOutside
}

// Decide specifies the behavior of the dataplane by returning the decision for the first packet of a connection.
// Frontends with an address take precedence over NodePorts. If no frontend matches, the verdict is Reject for packets
// to a ClusterIP's unused ports, and Drop for packets to unallocated addresses in the Service CIDRs. Decide visits
// every ServicePort, so it is too slow to call for every packet.
func (p *Plan) Decide(pkt Packet) Decision {
	origin := p.Node.Origin(pkt.Src, pkt.InInterface)
	if d, martian := decideMartian(pkt, origin); martian {
		return d
	}
	if slices.Contains(p.Node.LoopbackAddrs, pkt.Dst.Addr()) {
		return p.decideLoopback(pkt, origin)
	}
	if svc, f := p.lookup(pkt); svc != nil {
		return decideFrontend(svc, f, origin, pkt.Src)
	}
	dst := pkt.Dst.Addr()
	switch {
	case p.isClusterIP(dst):
		return Decision{
			Verdict: UnusedPortVerdict, Origin: origin,
			Reason: fmt.Sprintf("%s is a ClusterIP, but no Service uses its port %d/%s", dst, pkt.Dst.Port(),
				pkt.Protocol),
		}
	case containsAddr(p.Node.ServiceCIDRs, dst) && !slices.Contains(p.Node.HostAddrs, dst):
		return Decision{
			Verdict: UnallocatedVerdict, Origin: origin,
			Reason: fmt.Sprintf("%s is in a Service CIDR, but no Service uses this address", dst),
		}
	}
	return Decision{Verdict: Pass, Origin: origin, Reason: p.explainPass(pkt)}
}

// decideMartian returns the decision for a packet that is not from this host but has a loopback address as its source
// or destination. The kernel drops martian packets unless the route_localnet sysctl is set, and Edgeway never sets it.
func decideMartian(pkt Packet, origin Origin) (Decision, bool) {
	addr := pkt.Dst.Addr()
	if !addr.IsLoopback() {
		addr = pkt.Src
	}
	if pkt.InInterface == "" || !addr.IsLoopback() {
		return Decision{}, false
	}
	return Decision{Verdict: Drop, Origin: origin, Reason: fmt.Sprintf(
		"martian packet: the kernel drops packets from other hosts with the source or destination %s before they "+
			"reach any rule", addr,
	)}, true
}

// explainPass explains why a packet is not for a Service, or why a NodePort does not accept the packet.
func (p *Plan) explainPass(pkt Packet) string {
	dst := pkt.Dst.Addr()
	svc := p.nodePortAt(pkt)
	if svc == nil {
		return fmt.Sprintf("%s is not an address of a Service", pkt.Dst)
	}
	owner := fmt.Sprintf("%d is %s/%s's NodePort", pkt.Dst.Port(), svc.Name.Namespace, svc.Name.Name)
	if !dst.IsLoopback() && !slices.Contains(p.Node.HostAddrs, dst) {
		return fmt.Sprintf("%s is not an address of this host, although %s", dst, owner)
	}
	var accepting []string
	for _, a := range slices.Concat(p.Node.NodePortAddrs, p.Node.LoopbackAddrs) {
		if FamilyOf(a) == FamilyOf(dst) {
			accepting = append(accepting, a.String())
		}
	}
	if len(accepting) == 0 {
		return fmt.Sprintf("%s, but proxy.nodeport_addresses has no %s address", owner, FamilyOf(dst))
	}
	return fmt.Sprintf("%s, but only %s accepts NodePorts (see proxy.nodeport_addresses)",
		owner, strings.Join(accepting, ", "))
}

func (p *Plan) nodePortAt(pkt Packet) *ServicePort {
	for _, svc := range p.Services {
		if svc.Name.Protocol != pkt.Protocol || svc.Family != FamilyOf(pkt.Dst.Addr()) {
			continue
		}
		if slices.ContainsFunc(svc.Frontends,
			func(f Frontend) bool { return f.Kind == NodePort && f.Port == pkt.Dst.Port() }) {
			return svc
		}
	}
	return nil
}

// decideLoopback returns the decision for a connection to an address in Node.LoopbackAddrs.
func (p *Plan) decideLoopback(pkt Packet, origin Origin) Decision {
	for _, svc := range p.Services {
		if svc.Name.Protocol != pkt.Protocol || svc.Family != FamilyOf(pkt.Dst.Addr()) {
			continue
		}
		for i := range svc.Frontends {
			f := &svc.Frontends[i]
			if f.Kind != NodePort || f.Port != pkt.Dst.Port() {
				continue
			}
			pool, ok := svc.LoopbackPool(f)
			if !ok {
				return Decision{
					Verdict: NotRelayedVerdict, Origin: origin, Service: svc, Frontend: f,
					Reason: svc.explainNotRelayed(),
				}
			}
			return Decision{
				Verdict: Forward, Origin: origin, Service: svc, Frontend: f, Pool: pool, Endpoints: svc.Pools[pool],
				SNAT: true,
				Reason: fmt.Sprintf("%s of %s on loopback: Edgeway relays connections to %s", f.Kind, svc.Name,
					svc.describe(pool)),
			}
		}
	}
	return Decision{Verdict: Pass, Origin: origin, Reason: fmt.Sprintf("%s is not an address of a Service", pkt.Dst)}
}

// explainNotRelayed explains why LoopbackPool returns false.
func (s *ServicePort) explainNotRelayed() string {
	if s.Name.Protocol != TCP {
		return fmt.Sprintf("%s is not a TCP port, and the relay on loopback serves only TCP", s.Name)
	}
	return fmt.Sprintf("%s has no endpoint for clients outside the cluster, so the relay on loopback does not "+
		"serve the port",
		s.Name)
}

// LoopbackPool returns the pool for connections to the NodePort f on a loopback address. A connection to loopback
// reaches the same endpoints as a connection from an external client (KEP-6032). externalTrafficPolicy: Local applies,
// although the client is on this host. LoopbackPool returns false if Edgeway does not serve f on loopback, for example
// because Edgeway relays only TCP.
func (s *ServicePort) LoopbackPool(f *Frontend) (Pool, bool) {
	r := f.Routes[FromOutside]
	return r.Pool, s.Name.Protocol == TCP && r.Verdict == Forward && len(s.Pools[r.Pool]) > 0
}

func decideFrontend(svc *ServicePort, f *Frontend, origin Origin, src netip.Addr) Decision {
	route := f.Routes[origin]
	d := Decision{Verdict: route.Verdict, Origin: origin, Service: svc, Frontend: f}
	if f.AllowFrom != nil && !containsAddr(f.AllowFrom, src) {
		d.Verdict = Drop
		d.Reason = fmt.Sprintf("%s of %s does not allow connections from %s (loadBalancerSourceRanges)", f.Kind,
			svc.Name, src)
		return d
	}
	switch route.Verdict {
	case Reject:
		d.Reason = fmt.Sprintf("%s has no ready endpoint", svc.Name)
	case Drop:
		d.Reason = fmt.Sprintf("%s has endpoints, but none on this host, and its traffic policy is Local", svc.Name)
	default:
		d.Pool, d.Endpoints, d.SNAT = route.Pool, svc.Pools[route.Pool], route.SNAT
		d.Reason = fmt.Sprintf("%s of %s, from %s: %s", f.Kind, svc.Name, origin, svc.describe(route.Pool))
	}
	return d
}

func (s *ServicePort) describe(pool Pool) string {
	text := "the only usable endpoint"
	if n := len(s.Pools[pool]); n != 1 {
		text = fmt.Sprintf("one of %d endpoints", n)
	}
	if pool == LocalPool {
		text += " on this host"
	}
	return text
}

func (p *Plan) lookup(pkt Packet) (*ServicePort, *Frontend) {
	dst := pkt.Dst.Addr()
	nodePorts := !dst.IsLoopback() && slices.Contains(p.Node.NodePortAddrs, dst)
	var nodePortSvc *ServicePort
	var nodePort *Frontend
	for _, svc := range p.Services {
		if svc.Name.Protocol != pkt.Protocol || svc.Family != FamilyOf(dst) {
			continue
		}
		for i := range svc.Frontends {
			f := &svc.Frontends[i]
			switch {
			case f.Port != pkt.Dst.Port():
			case f.Kind != NodePort && f.Addr == dst:
				return svc, f
			case f.Kind == NodePort && nodePorts:
				nodePortSvc, nodePort = svc, f
			}
		}
	}
	return nodePortSvc, nodePort
}

func (p *Plan) isClusterIP(a netip.Addr) bool {
	for _, svc := range p.Services {
		for i := range svc.Frontends {
			if svc.Frontends[i].Kind == ClusterIP && svc.Frontends[i].Addr == a {
				return true
			}
		}
	}
	return false
}

func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}
