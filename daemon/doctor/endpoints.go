package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// network is a range of endpoint addresses with the usual size of a node's pod range. One route usually leads to all
// endpoints in a network.
type network struct {
	to   netip.Prefix // to is a single address if only one endpoint is known
	addr netip.Addr
	svc  plan.ServicePortName
}

// bits4 and bits6 are the usual prefix lengths of a node's pod ranges. maxNamed limits the number of networks that a
// notice names.
const (
	bits4, bits6 = 24, 64
	maxNamed     = 3
)

// endpointRoutes looks up the route to one endpoint in each network.
func endpointRoutes(_ context.Context, h *Host) []fault.Fault {
	var out []fault.Fault
	var byDefault []network
	var router nodeinfo.NextHop
	networks := h.networks()
	for _, n := range networks {
		r, why := h.route(n.addr)
		switch {
		case why != "" || r.NoCarrier:
			out = append(out, h.lost(n, r, why))
		case r.Default:
			byDefault, router = append(byDefault, n), r
		}
	}
	if len(byDefault) > 0 {
		out = append(out, behindRouter(byDefault, router))
	}
	if len(out) == 0 && len(networks) > 0 {
		out = append(out, ok("the kernel has routes to endpoints in %s", text.Count(len(networks), "network")))
	}
	return out
}

// behindRouter returns a notice rather than a problem, because many default routers have routes to the pods.
func behindRouter(networks []network, router nodeinfo.NextHop) fault.Fault {
	var names []string
	for _, n := range networks[:min(len(networks), maxNamed)] {
		names = append(names, networkOf(n.addr).String())
	}
	if more := len(networks) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	first := networks[0].svc
	return fault.New("", fault.Notice, fmt.Sprintf("edgeway doctor --connect %s/%s --trace", first.Namespace, first.Name),
		"only the default route (%s) leads to the endpoints in %s: connections fail unless that router has a route "+
			"to them",
		router, strings.Join(names, ", "))
}

// networks returns the networks of all endpoints that are in use and on other hosts.
func (h *Host) networks() (out []network) {
	at := map[netip.Prefix]int{}
	for _, svc := range h.servicePorts() {
		for _, pool := range svc.Pools {
			for _, e := range pool {
				a := e.Addr.Addr()
				to := networkOf(a)
				i, known := at[to]
				switch {
				case known:
					if out[i].addr != a {
						out[i].to = to
					}
				case len(out) < h.Lookups && !h.held(a):
					at[to] = len(out)
					out = append(out, network{netip.PrefixFrom(a, a.BitLen()), a, svc.Name})
				}
			}
		}
	}
	return out
}

func networkOf(a netip.Addr) netip.Prefix {
	bits := bits4
	if a.Is6() {
		bits = bits6
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// lost returns the fault for a network without a route or behind a link that is down. why is the reason for the missing
// route, or "" if the link is down.
func (h *Host) lost(n network, r nodeinfo.NextHop, why string) fault.Fault {
	if why == "" {
		why = "the link of " + r.Interface + " is down"
	}
	what := fmt.Sprintf("endpoint %s of %s", n.addr, n.svc)
	if !n.to.IsSingleIP() {
		what = fmt.Sprintf("endpoints in %s, such as %s of %s", n.to, n.addr, n.svc)
	}
	ip, instead := "ip", ""
	switch {
	case r.NoCarrier:
		return problem("ip -brief link show dev "+quoted(r.Interface)+
			"  # then bring the link up, or add another route to the network",
			"cannot send packets to %s (%s)", what, why).
			For(fault.Scope{To: n.to})
	case n.addr.Is6() && !h.ownAddr(plan.IPv6).IsValid():
		return warning(`proxy.ip_families = ["IPv4"]`,
			"cannot send packets to %s (%s): this host has no IPv6 address", what, why)
	case n.addr.Is6():
		ip, instead = "ip -6", `; or, without IPv6: proxy.ip_families = ["IPv4"]`
	}
	return problem(fmt.Sprintf("%s route replace %s via $ROUTER  # ROUTER: the address of the host "+
		"that runs the endpoints, or of the router to that host, on a network of this host%s",
		ip, short(n.to), instead),
		"cannot send packets to %s (%s)", what, why).For(fault.Scope{To: n.to})
}
