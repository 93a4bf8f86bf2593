package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// network is endpoints in a range of the size that a node mostly has for its pods.
type network struct {
	to    netip.Prefix
	addrs []netip.Addr // those that are looked up
	svc   plan.ServicePortName
}

// The sizes of such ranges, and how many networks are named.
const (
	bits4, bits6 = 24, 64
	maxNetworks  = 10
	maxNamed     = 3 // in a notice
)

// endpointRoutes looks up the endpoints that connections go to.
func endpointRoutes(_ context.Context, h *Host) []fault.Fault {
	networks := h.known
	if networks == nil {
		networks = h.networks()
	}
	var guessed byDefault
	var lost []loss
	for i := range networks {
		l := loss{network: &networks[i]}
		for _, a := range l.addrs {
			r, why := h.way(a)
			switch {
			case why == "" && r.NoCarrier:
				why = "the link of " + r.Interface + " is down"
			case why == "" && r.Default:
				guessed.add(l.network, r)
			}
			if why != "" {
				l.failed, l.why = append(l.failed, a), why
			}
		}
		if len(l.failed) > 0 {
			lost = append(lost, l)
		}
	}
	var out []fault.Fault
	for _, l := range lost[:min(len(lost), maxNetworks+1)] {
		out = append(out, h.lost(l))
	}
	out = append(shorten(out, len(lost), "networks of endpoints without a route"), guessed.notice()...)
	if len(out) == 0 && len(networks) > 0 {
		out = append(out, ok("the kernel has routes to endpoints in %s", text.Count(len(networks), "network")))
	}
	return out
}

// byDefault is the networks of endpoints that only a default route leads to, and the way to the first.
type byDefault struct {
	names []string
	svc   plan.ServicePortName
	way   nodeinfo.Way
}

func (b *byDefault) add(n *network, way nodeinfo.Way) {
	if len(b.names) == 0 {
		b.svc, b.way = n.svc, way
	}
	if name := n.to.String(); !slices.Contains(b.names, name) {
		b.names = append(b.names, name)
	}
}

// notice is no problem: in many networks, the default router has the routes to the pods.
func (b *byDefault) notice() []fault.Fault {
	if len(b.names) == 0 {
		return nil
	}
	fix := fmt.Sprintf("edgeway doctor --connect %s/%s --trace", b.svc.Namespace, b.svc.Name)
	return []fault.Fault{fault.New("", fault.Notice, fix,
		"only the default route (%s) leads to the endpoints in %s: connections fail unless that router has a route to them",
		b.way, several(b.names, maxNamed))}
}

// loss is a network some or all of whose addresses cannot be reached.
type loss struct {
	*network
	failed []netip.Addr
	why    string
}

// shorten keeps the first findings, and counts the others of so many: all need not be there.
func shorten(found []fault.Fault, total int, of string) []fault.Fault {
	if total <= maxNetworks {
		return found
	}
	rest := found[maxNetworks]
	rest.Message = fmt.Sprintf("%d more %s, such as: %s", total-maxNetworks, of, rest.Message)
	return append(found[:maxNetworks:maxNetworks], rest)
}

// networks gives those of all endpoints in use that are not on this host, with addresses to look up.
func (h *Host) networks() []network {
	found := map[netip.Prefix]*network{}
	for _, svc := range h.servicePorts() {
		for _, pool := range svc.Pools {
			for _, e := range pool {
				h.note(found, svc, e.Addr.Addr())
			}
		}
	}
	out := make([]network, 0, len(found))
	for _, prefix := range slices.SortedFunc(maps.Keys(found), netip.Prefix.Compare) {
		out = append(out, *found[prefix])
	}
	out = out[:min(len(out), h.Lookups)]
	for i := range out {
		each := max(1, h.Lookups/len(out))
		out[i].addrs = out[i].addrs[:min(len(out[i].addrs), each)]
	}
	return out
}

// maxPerNetwork is how many addresses of one network are looked up at most: they mostly have one route, and an endpoint
// may have one of its own.
const maxPerNetwork = 2

func (h *Host) note(found map[netip.Prefix]*network, svc *plan.ServicePort, a netip.Addr) {
	prefix := networkOf(a)
	n := found[prefix]
	switch {
	case n != nil && (len(n.addrs) == maxPerNetwork || slices.Contains(n.addrs, a)), h.held(a):
		return
	case n == nil:
		n = &network{to: prefix, svc: svc.Name}
		found[prefix] = n
	}
	n.addrs = append(n.addrs, a)
}

func networkOf(a netip.Addr) netip.Prefix {
	bits := bits4
	if a.Is6() {
		bits = bits6
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// lost returns a loss as a fault.
func (h *Host) lost(l loss) fault.Fault {
	a, to := l.failed[0], l.to
	what := fmt.Sprintf("endpoints in %s, such as %s of %s", to, a, l.svc)
	if len(l.failed) < len(l.addrs) || len(l.failed) == 1 { // others of the network have routes, or it is not known to be one
		to = netip.PrefixFrom(a, a.BitLen())
		what = fmt.Sprintf("endpoint %s of %s", a, l.svc)
	}
	what = fmt.Sprintf("no packet can be sent to %s (%s)", what, l.why)
	scope := fault.Scope{To: to}
	if r, err := h.Way(a); err == nil && r.NoCarrier {
		return problem("ip -brief link show dev "+quoted(r.Interface)+
			"  # then plug it in, or give the network another route", "%s", what).For(scope)
	}
	ip, instead := "ip", ""
	if a.Is6() {
		ip, instead = "ip -6", `; or, without IPv6: proxy.ip_families = ["IPv4"]`
		if !h.ownAddr(plan.IPv6).IsValid() {
			return warning(`proxy.ip_families = ["IPv4"]`, "%s: this host has no address of IPv6", what)
		}
	}
	return problem(fmt.Sprintf("%s route replace %s via $ROUTER  # ROUTER: the address of %s, or of the router to it, "+
		"on a network of this host%s", ip, short(to), h.nodeOf(a), instead), "%s", what).For(scope)
}

// nodeOf names the node of an endpoint, as far as that is known.
func (h *Host) nodeOf(a netip.Addr) string {
	for e := range h.endpoints() {
		if e.Addr == a && e.NodeName != "" {
			return "node " + e.NodeName
		}
	}
	return "the host that has them"
}
