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
	networks := h.networks()
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
			} else if names := ways[r.String()]; len(names) == 0 || names[len(names)-1] != n.to.String() {
				ways[r.String()] = append(names, n.to.String())
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

// maxPerNetwork is how many addresses of one network are looked up at most.
const maxPerNetwork = 16

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
	if len(failed) < len(n.addrs) || len(failed) == 1 {
		to = netip.PrefixFrom(a, a.BitLen()) // others of the network have routes, or it is not known to be one
	}
	if r, err := h.Route(a); err == nil && r.NoCarrier {
		return problem("ip -brief link show dev "+r.Interface+"  # then plug it in, or give the network another route",
			"no packet can be sent to endpoints in %s (%s), such as %s of %s", short(to), why, a, n.svc)
	}
	ip := "ip"
	if a.Is6() {
		ip = "ip -6"
		if h.ownAddr(plan.IPv6) == (netip.Addr{}) {
			return warning(`proxy.ip_families = ["IPv4"]`, "no packet can be sent to endpoints in %s (%s), as this host has no address of IPv6", short(to), why)
		}
	}
	router, whose := h.router(a)
	if router.IsValid() {
		return problem(fmt.Sprintf("%s route add %s via %s", ip, short(to), router),
			"no packet can be sent to endpoints in %s (%s), such as %s of %s. They are on %s, which has the address %s", short(to), why, a, n.svc, whose, router)
	}
	if whose == "" {
		whose = "the host that has them"
	}
	return problem(fmt.Sprintf("%s route add %s via $ROUTER  # ROUTER: the address of %s, or of the router to it, on a network of this host", ip, short(to), whose),
		"no packet can be sent to endpoints in %s (%s), such as %s of %s", short(to), why, a, n.svc)
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
