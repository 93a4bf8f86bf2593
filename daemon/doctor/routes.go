package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// target is a Service range or a Service address that needs a route. The kernel looks up the route of a packet from
// this host before Edgeway's rules process the packet.
type target struct {
	name string // name is, for example, "the Service range"
	to   netip.Prefix
	// addr is an address of the ServicePort svc, and endpoint is an endpoint that receives connections to addr.
	addr, endpoint netip.Addr
	svc            plan.ServicePortName
}

// checkServiceRoutes looks up the routes to the Service ranges and to the Service addresses outside these ranges.
func checkServiceRoutes(_ context.Context, h *Host) []fault.Fault {
	var out []fault.Fault
	targets := h.targets()
	for _, t := range targets {
		if f := h.judge(t); f.Severity != fault.OK {
			out = append(out, f)
		}
	}
	if len(out) == 0 && len(targets) > 0 {
		return []fault.Fault{ok("the kernel has routes to all Service ranges and addresses")}
	}
	return out
}

// targets returns one target for each Service range that contains a ClusterIP, and one for each Service address outside
// the ranges. The result omits this host's addresses, and the addresses to which Edgeway forwards no connections from
// this host.
func (h *Host) targets() []target {
	found := map[netip.Prefix]target{}
	for _, svc := range h.servicePorts() {
		for i := range svc.Frontends {
			f := &svc.Frontends[i]
			r := f.Routes[plan.FromHost]
			if f.Kind == plan.NodePort || r.Verdict != plan.Forward || len(svc.Pools[r.Pool]) == 0 || h.owns(f.Addr) {
				continue
			}
			t := target{
				name: "the " + f.Kind.String(), to: netip.PrefixFrom(f.Addr, f.Addr.BitLen()), addr: f.Addr,
				endpoint: svc.Pools[r.Pool][0].Addr.Addr(), svc: svc.Name,
			}
			if at := slices.IndexFunc(h.node().ServiceCIDRs,
				func(p netip.Prefix) bool { return p.Contains(f.Addr) }); at >= 0 {
				t.name, t.to = "the Service range", h.node().ServiceCIDRs[at]
			}
			if _, known := found[t.to]; !known && (len(found) < h.MaxLookups || !t.to.IsSingleIP()) {
				found[t.to] = t
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b target) int { return a.to.Compare(b.to) })
}

// String returns text such as "the Service range 10.96.0.0/12".
func (t target) String() string { return t.name + " " + formatPrefix(t.to) }

func (h *Host) judge(t target) fault.Fault {
	r, why := h.lookUpRoute(t.addr)
	if why == "" {
		return ok("%s: %s", t, r)
	}
	fix := h.routeCommand(t)
	if fix == "" {
		family := plan.FamilyOf(t.addr)
		return warning(fmt.Sprintf("proxy.ip_families = [%q]", other(family)),
			"cannot send packets to %s (%s), because this host has no %s address", t, why, family)
	}
	return problem(fix,
		"cannot send packets to %s (%s): the host's own connections, such as those to %s of %s, fail "+
			"before the kernel evaluates any rule", t,
		why, t.addr, t.svc).WithScope(fault.Scope{Clients: fault.Host, To: t.to})
}

// routeCommand returns the command that adds a route to the target or replaces a route that rejects packets. The result
// is "" if this host has no source address. Edgeway's rules replace the destination before a packet leaves, so the
// route may use any device that is up. The device lo is the last resort. IPv6 routes through lo reject packets
// (ip6_route_info_create). If the route uses lo, a forwarded packet loops unless a rule translates it.
func (h *Host) routeCommand(t target) string {
	endpoint, why := h.lookUpRoute(t.endpoint)
	source := endpoint.Source
	if why != "" || !source.IsValid() || source.IsLoopback() || source.IsLinkLocalUnicast() {
		source = h.ownAddr(plan.FamilyOf(t.addr))
	}
	if !source.IsValid() {
		return ""
	}
	device := endpoint.Interface
	if links, err := h.Links(); err == nil && (why != "" || endpoint.Local) && len(links) > 0 {
		device = links[0]
	}
	if device == "" && source.Is6() {
		return ""
	}
	ip := "ip"
	if source.Is6() {
		ip = "ip -6"
	}
	fix := fmt.Sprintf("%s route replace %s dev %s src %s", ip, formatPrefix(t.to), quote(cmp.Or(device, "lo")), source)
	if h.Config.Routes.Services == config.RoutesNever {
		fix += `  # or set routes.services = "auto", so that the daemon adds the route`
	}
	return fix
}

// ownAddr returns an address of this host that other hosts can reach, or the zero Addr if the host has none in the
// family.
func (h *Host) ownAddr(family plan.Family) netip.Addr {
	for _, a := range slices.Concat(h.node().NodePortAddrs, h.node().HostAddrs) {
		if plan.FamilyOf(a) == family && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			return a
		}
	}
	return netip.Addr{}
}

// lookUpRoute looks up the kernel's route to an address. The second result explains why the kernel cannot send packets
// to the address, or is "" if it can. lookUpRoute ignores the state of the link, which does not matter if rules replace
// the destination.
func (h *Host) lookUpRoute(to netip.Addr) (r nodeinfo.NextHop, why string) {
	r, err := h.NextHop(to)
	switch {
	case rejectingRoutes[errno(err)] != "":
		return r, rejectingRoutes[errno(err)]
	case err != nil && errno(err) != 0:
		return r, errno(err).Error()
	case err != nil:
		return r, err.Error()
	case r.Local:
		return r, ""
	case r.Source.IsLoopback():
		return r, "the packets' source address would be " + r.Source.String()
	}
	return r, ""
}

// rejectingRoutes maps the kernel's route lookup errors to descriptions of the routes that cause them. See
// System.NextHop.
var rejectingRoutes = map[syscall.Errno]string{
	syscall.EINVAL:       "a blackhole route",
	syscall.EHOSTUNREACH: "an unreachable route",
	syscall.EACCES:       "a prohibit route",
}

func errno(err error) (number syscall.Errno) {
	errors.As(err, &number)
	return number
}

// formatPrefix formats a prefix, without the length if the prefix contains only one address.
func formatPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func other(f plan.Family) plan.Family { return plan.IPv4 + plan.IPv6 - f }
