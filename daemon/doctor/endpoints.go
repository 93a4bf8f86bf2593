package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"edgeway/daemon/doctor/finding"
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
)

// endpointRoutes looks up the endpoints that connections go to.
func endpointRoutes(_ context.Context, h *Host) []finding.Finding {
	networks := h.known
	if networks == nil {
		networks = h.networks()
	}
	ways := map[string][]string{} // the networks of each way
	var lost []finding.Finding
	for i := range networks {
		n := &networks[i]
		var failed []netip.Addr
		var reason string
		for _, a := range n.addrs {
			r, why := h.way(a)
			if why == "" && r.NoCarrier {
				why = "the link of " + r.Interface + " is down"
			}
			if why != "" {
				failed, reason = append(failed, a), why
			} else if names := ways[withSource(r)]; len(names) == 0 || names[len(names)-1] != n.to.String() {
				ways[withSource(r)] = append(names, n.to.String())
			}
		}
		if len(failed) > 0 {
			lost = append(lost, h.lost(n, failed, reason))
		}
	}
	return append(shorten(lost, "networks of endpoints without a route"), summary(ways)...)
}

// shorten keeps the first findings, and counts the others.
func shorten(all []finding.Finding, of string) []finding.Finding {
	if len(all) <= maxNetworks {
		return all
	}
	rest := all[maxNetworks]
	rest.Seen = fmt.Sprintf("%d more %s, such as: %s", len(all)-maxNetworks, of, rest.Seen)
	return append(all[:maxNetworks:maxNetworks], rest)
}

// summary is one line for each way.
func summary(ways map[string][]string) (out []finding.Finding) {
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		out = append(out, ok("endpoints in %s: %s", several(ways[way], maxNetworks), way))
	}
	if len(out) > maxNetworks {
		out = append(out[:maxNetworks], ok("endpoints in other networks: %d more ways", len(out)-maxNetworks))
	}
	return out
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

// maxPerNetwork is how many addresses of one network are looked up at most: they mostly have one route, and an endpoint may have one of its own.
const maxPerNetwork = 2

func (h *Host) note(found map[netip.Prefix]*network, svc *plan.ServicePort, a netip.Addr) {
	bits := bits4
	if a.Is6() {
		bits = bits6
	}
	prefix := netip.PrefixFrom(a, bits).Masked()
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

// lost is the finding of a network, some or all of whose addresses cannot be reached.
func (h *Host) lost(n *network, failed []netip.Addr, why string) finding.Finding {
	a, to := failed[0], n.to
	what := fmt.Sprintf("endpoints in %s, such as %s of %s", to, a, n.svc)
	if len(failed) < len(n.addrs) || len(failed) == 1 { // others of the network have routes, or it is not known to be one
		to = netip.PrefixFrom(a, a.BitLen())
		what = fmt.Sprintf("endpoint %s of %s", a, n.svc)
	}
	what = fmt.Sprintf("no packet can be sent to %s (%s)", what, why)
	if r, err := h.Way(a); err == nil && r.NoCarrier {
		return problem("ip -brief link show dev "+r.Interface+"  # then plug it in, or give the network another route", "%s", what)
	}
	ip, instead := "ip", ""
	if a.Is6() {
		ip, instead = "ip -6", `; or, without IPv6: proxy.ip_families = ["IPv4"]`
		if !h.ownAddr(plan.IPv6).IsValid() {
			return warning(`proxy.ip_families = ["IPv4"]`, "%s: this host has no address of IPv6", what)
		}
	}
	router, whose := h.router(a)
	switch {
	case router.IsValid():
		return problem(fmt.Sprintf("%s route add %s via %s", ip, short(to), router), "%s. It is on %s, which has the address %s", what, whose, router)
	case whose == "":
		whose = "the host that has them"
	}
	return problem(fmt.Sprintf("%s route add %s via $ROUTER  # ROUTER: the address of %s, or of the router to it, on a network of this host%s", ip, short(to), whose, instead), "%s", what)
}

// router gives the address of the node that an endpoint is on, if this host can reach it without another router. The node's
// object is not read; but what runs in the node's own network, as an agent or an ingress controller, has its address.
func (h *Host) router(endpoint netip.Addr) (router netip.Addr, node string) {
	for e := range h.endpoints() {
		if e.Addr == endpoint && e.NodeName != "" {
			node = e.NodeName
			break
		}
	}
	if node == "" {
		return netip.Addr{}, ""
	}
	for e := range h.endpoints() {
		if e.NodeName != node || e.Addr.Is4() != endpoint.Is4() {
			continue
		}
		if r, why := h.way(e.Addr); why == "" && !r.Local && !r.NoCarrier && !r.Gateway.IsValid() {
			return e.Addr, "node " + node
		}
	}
	return netip.Addr{}, "node " + node
}
