package conntrack

import (
	"net/netip"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// cleanedProtocols lists the protocols whose stale flows the follower deletes when Services change. The package comment
// explains why the follower keeps TCP connections' entries.
var cleanedProtocols = [...]plan.Protocol{plan.UDP, plan.SCTP}

// rule decides which flows to one destination are stale.
type rule struct {
	// owned reports whether the destination still belongs to a frontend. If owned is true, a flow is stale unless its
	// real destination is in endpoints. If owned is false, endpoints holds the removed frontend's endpoints, and a flow
	// is stale if its real destination is one of them.
	owned     bool
	endpoints []plan.Endpoint // sorted
	// unanswered restricts the rule to flows without a reply.
	unanswered bool
}

func (r rule) stale(f *netlink.Flow) bool {
	if r.unanswered && f.HasReply() {
		return false
	}
	_, known := plan.FindEndpoint(r.endpoints, f.Reply.Src)
	if r.owned {
		return !known
	}
	return known && f.Reply.Src != f.Orig.Dst
}

// ruleSet maps each destination to the rule that decides which flows to the destination are stale.
type ruleSet map[netlink.Scope]map[netip.AddrPort]rule

// addRemoved adds a rule for a removed frontend. If the destination already has a rule, addRemoved keeps that rule,
// because the destination may now belong to another ServicePort.
func (s ruleSet) addRemoved(sc netlink.Scope, dst netip.AddrPort, endpoints []plan.Endpoint) {
	if _, taken := s[sc][dst]; !taken && len(endpoints) > 0 {
		s.set(sc, dst, rule{endpoints: endpoints})
	}
}

func (s ruleSet) set(sc netlink.Scope, dst netip.AddrPort, r rule) {
	if s[sc] == nil {
		s[sc] = map[netip.AddrPort]rule{}
	}
	s[sc][dst] = r
}

// addAll adds a rule for every frontend in p. A stale TCP connection is always unanswered: the client sent its SYN
// while the kernel had no rules.
func (s ruleSet) addAll(p *plan.Plan) {
	for _, svc := range p.Services {
		tcp := svc.Name.Protocol == plan.TCP
		for dst := range svc.Destinations(p.Node) {
			s.set(netlink.Scope{Family: svc.Family, Protocol: svc.Name.Protocol}, dst,
				rule{owned: true, endpoints: svc.Serving, unanswered: tcp})
		}
	}
}

// rulesFor returns rules for the destinations that may have stale flows after a change. A destination may have stale
// flows if its frontend is new or removed, or if its ServicePort lost an endpoint or gained its first endpoint. If
// c.Prev is nil, rulesFor returns no rules.
func rulesFor(c proxiers.Change) ruleSet {
	s := ruleSet{}
	if c.Prev == nil {
		return s
	}
	changed := c.Changed
	if !slices.Equal(c.Prev.Node.NodePortAddrs, c.Next.Node.NodePortAddrs) {
		changed = c.Next.Services
	}
	for _, svc := range changed {
		s.addServicePort(c.Prev.Find(svc.Name, svc.Family), svc, c.Prev.Node, c.Next.Node)
	}
	for _, svc := range c.Removed {
		s.addServicePort(svc, nil, c.Prev.Node, c.Next.Node)
	}
	return s
}

// addServicePort adds a rule for each of a ServicePort's destinations that may have stale flows. before is nil if the
// ServicePort is new, and after is nil if the ServicePort was removed.
func (s ruleSet) addServicePort(before, after *plan.ServicePort, nodeBefore, nodeAfter *plan.Node) {
	svc := after
	if svc == nil {
		svc = before
	}
	if !slices.Contains(cleanedProtocols[:], svc.Name.Protocol) {
		return
	}
	sc := netlink.Scope{Family: svc.Family, Protocol: svc.Name.Protocol}
	was, is := destinations(before, nodeBefore), destinations(after, nodeAfter)
	all := before != nil && after != nil && mayLeaveStaleFlows(before.Serving, after.Serving)
	for dst := range is {
		if all || !was[dst] {
			s.set(sc, dst, rule{owned: true, endpoints: after.Serving})
		}
	}
	for dst := range was {
		if !is[dst] {
			s.addRemoved(sc, dst, before.Serving)
		}
	}
}

// mayLeaveStaleFlows reports whether the ServicePort lost an endpoint or gained its first endpoint. While a ServicePort
// has no endpoint, a backend may accept flows without translating them.
func mayLeaveStaleFlows(before, after []plan.Endpoint) bool {
	if len(before) == 0 {
		return len(after) > 0
	}
	for _, e := range before {
		if _, stays := plan.FindEndpoint(after, e.Addr); !stays {
			return true
		}
	}
	return false
}

func destinations(svc *plan.ServicePort, node *plan.Node) map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	if svc != nil {
		for dst := range svc.Destinations(node) {
			all[dst] = true
		}
	}
	return all
}
