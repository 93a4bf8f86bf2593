package doctor

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/plan"
)

// ports looks for programs that have a port of Edgeway, or whose port a NodePort has.
func ports(_ context.Context, h *Host) []finding.Finding {
	var out []finding.Finding
	for _, w := range h.NotListening {
		out = append(out, problem("ss -tlnp  # shows which program listens there: stop it, or change the port", "the daemon cannot listen on %s", w))
	}
	listeners, err := h.Listeners()
	if err != nil {
		return append(out, warning("", "the ports that programs listen on cannot be read: %v", err))
	}
	if h.PID == 0 && h.Unasked.Seen == "" { // or they may be the daemon's own
		out = append(out, h.taken(listeners)...)
	}
	shadowed := h.shadowed(listeners)
	out = append(out, shorten(shadowed, len(shadowed), "ports of programs that are NodePorts")...)
	if len(out) == 0 && h.Plan != nil {
		out = append(out, ok("no program listens on a port of Edgeway"))
	}
	return out
}

// taken finds what a daemon could not listen on if it were started.
func (h *Host) taken(listeners []nodeinfo.Listener) (out []finding.Finding) {
	wanted := h.listening()
	for key, addr := range map[string]string{"health.address": h.Config.Health.Address, "metrics.address": h.Config.Metrics.Address} {
		if at, err := netip.ParseAddrPort(addr); err == nil {
			wanted[at] = key
		} else if at, err := netip.ParseAddrPort("[::]" + addr); err == nil { // ":10256", of both families
			wanted[at] = key
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(wanted), netip.AddrPort.Compare) {
		i := slices.IndexFunc(listeners, func(l nodeinfo.Listener) bool { return l.Protocol == plan.TCP && overlap(l.Addr, at) })
		if i < 0 {
			continue
		}
		f := warning("ss -tlnp  # shows which program it is", "a program listens on %s, the port of %s: the daemon could not listen there", listeners[i], wanted[at])
		if !slices.Contains(out, f) { // of another address
			out = append(out, f)
		}
	}
	return out
}

// overlap reports whether two sockets cannot listen at the same time.
func overlap(a, b netip.AddrPort) bool {
	if a.Port() != b.Port() {
		return false
	}
	covers := func(x, y netip.Addr) bool { return x == y || x.IsUnspecified() && (x.Is6() || y.Is4()) }
	return covers(a.Addr(), b.Addr()) || covers(b.Addr(), a.Addr())
}

// shadowed finds programs that listen on a port that became a NodePort before they began: others do not reach them.
func (h *Host) shadowed(listeners []nodeinfo.Listener) (out []finding.Finding) {
	type port struct {
		protocol plan.Protocol
		number   uint16
	}
	owners := map[port]plan.ServicePortName{}
	for _, svc := range h.servicePorts() {
		for i := range svc.Frontends {
			if f := &svc.Frontends[i]; f.Kind == plan.NodePort {
				owners[port{svc.Name.Protocol, f.Port}] = svc.Name
			}
		}
	}
	for _, l := range listeners {
		owner, isNodePort := owners[port{l.Protocol, l.Addr.Port()}]
		if isNodePort && slices.ContainsFunc(h.node().NodePortAddrs, func(a netip.Addr) bool { return overlap(l.Addr, netip.AddrPortFrom(a, l.Addr.Port())) }) {
			out = append(out, warning("ss -lnp  # shows which program it is: give it another port, and set proxy.nodeport_range",
				"a program listens on %s, the NodePort of %s: connections from other hosts go to the Service", l, owner))
		}
	}
	return out
}
