package conntrack

import (
	"net/netip"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// cleaned are the protocols whose flows are cleaned up after a change; see the package comment.
var cleaned = [...]plan.Protocol{plan.UDP, plan.SCTP}

// rule says which flows to one destination are stale.
type rule struct {
	// owned says that the destination is a frontend now: a flow is stale unless it goes to one of
	// endpoints. Otherwise it was a frontend before: a flow is stale if it was translated to one
	// of endpoints, which are those of the time before.
	owned     bool
	endpoints []plan.Endpoint // sorted
	// unanswered says that only flows that nobody has answered yet are stale.
	unanswered bool
}

func (r rule) stale(f *netlink.Flow) bool {
	if r.unanswered && f.Answered() {
		return false
	}
	known := has(r.endpoints, f.Reply.Src)
	if r.owned {
		return !known
	}
	return known && f.Reply.Src != f.Orig.Dst
}

// suspects are the destinations whose flows must be looked at.
type suspects map[netlink.Scope]map[netip.AddrPort]rule

func (s suspects) own(sc netlink.Scope, dst netip.AddrPort, endpoints []plan.Endpoint) {
	s.set(sc, dst, rule{owned: true, endpoints: endpoints})
}

// disown never replaces a rule: a destination that another ServicePort has now belongs to that one.
func (s suspects) disown(sc netlink.Scope, dst netip.AddrPort, endpoints []plan.Endpoint) {
	if _, taken := s[sc][dst]; !taken && len(endpoints) > 0 {
		s.set(sc, dst, rule{endpoints: endpoints})
	}
}

func (s suspects) set(sc netlink.Scope, dst netip.AddrPort, r rule) {
	if s[sc] == nil {
		s[sc] = map[netip.AddrPort]rule{}
	}
	s[sc][dst] = r
}

// addAll makes every frontend of p a suspect. Of TCP, these are the connections that a client tried
// while there were no rules.
func (s suspects) addAll(p *plan.Plan) {
	for _, svc := range p.Services {
		tcp := svc.Name.Protocol == plan.TCP
		for dst := range svc.Destinations(p.Node) {
			s.set(netlink.Scope{Family: svc.Family, Protocol: svc.Name.Protocol}, dst,
				rule{owned: true, endpoints: svc.Serving, unanswered: tcp})
		}
	}
}

// suspectsOf gives the destinations that a change may have left stale flows to:
// all frontends of a ServicePort that lost an endpoint or got its first, and frontends that are new
// or gone. Without a Prev there are none.
func suspectsOf(c proxiers.Change) suspects {
	s := suspects{}
	if c.Prev == nil {
		return s
	}
	changed := c.Changed
	if !slices.Equal(c.Prev.Node.NodePortAddrs, c.Next.Node.NodePortAddrs) {
		changed = c.Next.Services
	}
	for _, svc := range changed {
		s.compare(c.Prev.Find(svc.Name, svc.Family), svc, c.Prev.Node, c.Next.Node)
	}
	for _, svc := range c.Removed {
		s.compare(svc, nil, c.Prev.Node, c.Next.Node)
	}
	return s
}

// compare adds the suspects of one ServicePort; before or after is nil when there was or is none.
func (s suspects) compare(before, after *plan.ServicePort, nodeBefore, nodeAfter *plan.Node) {
	svc := after
	if svc == nil {
		svc = before
	}
	if !slices.Contains(cleaned[:], svc.Name.Protocol) {
		return
	}
	sc := netlink.Scope{Family: svc.Family, Protocol: svc.Name.Protocol}
	was, is := destinations(before, nodeBefore), destinations(after, nodeAfter)
	all := before != nil && after != nil && lost(before.Serving, after.Serving)
	for _, dst := range is {
		if all || !slices.Contains(was, dst) {
			s.own(sc, dst, after.Serving)
		}
	}
	for _, dst := range was {
		if !slices.Contains(is, dst) {
			s.disown(sc, dst, before.Serving)
		}
	}
}

// lost reports whether flows that were valid before may be stale now. The first endpoint counts:
// a backend may have let flows through untranslated while there was none.
func lost(before, after []plan.Endpoint) bool {
	if len(before) == 0 {
		return len(after) > 0
	}
	for _, e := range before {
		if !has(after, e.Addr) {
			return true
		}
	}
	return false
}

// destinations gives every address and port that svc is reached by.
func destinations(svc *plan.ServicePort, node *plan.Node) []netip.AddrPort {
	var list []netip.AddrPort
	if svc != nil {
		for dst := range svc.Destinations(node) {
			list = append(list, dst)
		}
	}
	return list
}

func has(sorted []plan.Endpoint, at netip.AddrPort) bool {
	_, ok := slices.BinarySearchFunc(sorted, at,
		func(e plan.Endpoint, at netip.AddrPort) int { return e.Addr.Compare(at) })
	return ok
}
