package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// network is an address range that contains endpoints. The range is as large as a typical node's pod range, because a
// single route leads to all endpoints in a pod range. Some network plugins use smaller pod ranges, so the doctor
// examines two endpoints of each network.
type network struct {
	prefix      netip.Prefix // prefix is a single address if only one endpoint is known
	first, last sample
}

// sample is an endpoint and the result of its route lookup. reason explains why the endpoint has no route, or is "" if
// it has one.
type sample struct {
	addr   netip.Addr
	svc    plan.ServicePortName
	hop    nodeinfo.NextHop
	reason string
}

func (s *sample) isUnreachable() bool { return s.reason != "" || s.hop.NoCarrier }

const (
	// bits4 and bits6 are the usual prefix lengths of a node's pod ranges.
	bits4, bits6 = 24, 64
	// maxNamed is the maximum number of networks that a notice names.
	maxNamed = 3
)

// checkEndpointRoutes looks up the routes to the first and the last endpoint of each network. If h.MaxLookups permits
// no second lookup, checkEndpointRoutes assumes that the last endpoint has the same route as the first.
func checkEndpointRoutes(_ context.Context, h *Host) []fault.Fault {
	var out []fault.Fault
	var byDefault []network
	var router nodeinfo.NextHop
	networks := h.networks()
	more := h.MaxLookups - len(networks)
	for _, n := range networks {
		first, last := &n.first, &n.last
		first.hop, first.reason = h.lookUpRoute(first.addr)
		last.hop, last.reason = first.hop, first.reason
		if more > 0 && last.addr != first.addr {
			more--
			last.hop, last.reason = h.lookUpRoute(last.addr)
		}
		switch {
		case first.isUnreachable() && last.isUnreachable():
			out = append(out, h.routeFault(n.prefix, first))
		case first.isUnreachable():
			out = append(out, h.routeFault(single(first.addr), first))
		case last.isUnreachable():
			out = append(out, h.routeFault(single(last.addr), last))
		case first.hop.Default:
			byDefault, router = append(byDefault, n), first.hop
		}
	}
	if len(byDefault) > 0 {
		out = append(out, routerNotice(byDefault, router))
	}
	if len(out) == 0 && len(networks) > 0 {
		out = append(out, ok("the kernel has routes to endpoints in %s", text.Count(len(networks), "network")))
	}
	return out
}

// routerNotice returns a notice about endpoints behind the default router. The finding is not a problem, because many
// default routers have routes to the pods.
func routerNotice(networks []network, router nodeinfo.NextHop) fault.Fault {
	var names []string
	for _, n := range networks[:min(len(networks), maxNamed)] {
		names = append(names, networkOf(n.first.addr).String())
	}
	if more := len(networks) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	first := networks[0].first.svc
	return fault.New("", fault.Notice,
		fmt.Sprintf("edgeway doctor --connect %s/%s --trace", first.Namespace, first.Name),
		"only the default route (%s) leads to the endpoints in %s: connections fail unless the default router "+
			"has a route to the endpoints",
		router, strings.Join(names, ", "))
}

// networks returns the networks that contain the plan's endpoints on other hosts.
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
					if out[i].first.addr != a && !h.owns(a) {
						out[i].prefix, out[i].last = to, sample{addr: a, svc: svc.Name}
					}
				case len(out) < h.MaxLookups && !h.owns(a):
					at[to] = len(out)
					of := sample{addr: a, svc: svc.Name}
					out = append(out, network{single(a), of, of})
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

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// routeFault returns the fault for endpoints that have no route or whose link is down.
func (h *Host) routeFault(to netip.Prefix, s *sample) fault.Fault {
	why := cmp.Or(s.reason, "the link of "+s.hop.Interface+" is down")
	what := fmt.Sprintf("endpoint %s of %s", s.addr, s.svc)
	if !to.IsSingleIP() {
		what = fmt.Sprintf("endpoints in %s, such as %s of %s", to, s.addr, s.svc)
	}
	ip, instead := "ip", ""
	switch {
	case s.hop.NoCarrier:
		return problem("ip -brief link show dev "+quote(s.hop.Interface)+
			"  # then bring the link up, or add another route to the network",
			"cannot send packets to %s (%s)", what, why).
			WithScope(fault.Scope{To: to})
	case s.addr.Is6() && !h.ownAddr(plan.IPv6).IsValid():
		return warning(`proxy.ip_families = ["IPv4"]`,
			"cannot send packets to %s (%s): this host has no IPv6 address", what, why)
	case s.addr.Is6():
		ip, instead = "ip -6", `; or serve only IPv4: proxy.ip_families = ["IPv4"]`
	}
	return problem(fmt.Sprintf("%s route replace %s via $ROUTER  # ROUTER: the address of the host "+
		"that runs the endpoints, or of the router to that host, on a network of this host%s",
		ip, formatPrefix(to), instead),
		"cannot send packets to %s (%s)", what, why).WithScope(fault.Scope{To: to})
}
