package planner

import (
	"cmp"
	"net/netip"
	"slices"

	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/plan"
)

// loopbackDevice is the kernel's name for it in every network namespace.
const loopbackDevice = "lo"

// uplinks gives that of a family, if there is one and it is wanted, and notes whether its address is guessed: no default route
// has chosen it.
func (e *environment) uplinks(o *Options, family plan.Family, own []netip.Addr, host *nodeinfo.Host) []plan.Uplink {
	up, ok := uplink(family, own, host)
	if !ok || !o.OwnRoutes {
		return nil
	}
	if !slices.ContainsFunc(host.Addrs, func(a nodeinfo.Addr) bool { return a.Primary && plan.FamilyOf(a.Addr) == family }) {
		e.guessed = append(e.guessed, family)
	}
	return []plan.Uplink{up}
}

// uplink gives where connections begin that an own route leads; false: the host has no address or no interface for it. own are
// the host's own addresses in the cluster's eyes, the first one preferred. Of the others that of the default route comes
// first, and those of dummy interfaces last.
func uplink(family plan.Family, own []netip.Addr, host *nodeinfo.Host) (plan.Uplink, bool) {
	var from, by []nodeinfo.Addr
	for _, a := range host.Addrs {
		if plan.FamilyOf(a.Addr) != family || a.Addr.IsLoopback() || a.Addr.IsLinkLocalUnicast() {
			continue
		}
		from = append(from, a)
		if a.Interface != loopbackDevice {
			by = append(by, a)
		}
	}
	if len(by) == 0 {
		return plan.Uplink{}, false
	}
	source := slices.MinFunc(from, func(a, b nodeinfo.Addr) int {
		return cmp.Or(cmp.Compare(rank(own, a.Addr), rank(own, b.Addr)), first(a.Primary, b.Primary), first(!a.Dummy, !b.Dummy))
	})
	link := slices.MinFunc(by, func(a, b nodeinfo.Addr) int {
		return cmp.Or(first(!a.Dummy, !b.Dummy), first(a.Addr == source.Addr, b.Addr == source.Addr))
	})
	return plan.Uplink{Addr: source.Addr, Interface: link.Interface}, true
}

// rank gives the place of an address in the list; of all that are not there the last.
func rank(list []netip.Addr, a netip.Addr) int {
	if i := slices.Index(list, a); i >= 0 {
		return i
	}
	return len(list)
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
