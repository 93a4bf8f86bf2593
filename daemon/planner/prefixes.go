package planner

import (
	"net/netip"
	"slices"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

func addrsOfFamily(addrs []netip.Addr, family plan.Family) (out []netip.Addr) {
	for _, a := range addrs {
		if plan.FamilyOf(a) == family {
			out = append(out, a)
		}
	}
	return out
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func sortAddrs(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func hasAddr(sorted []netip.Addr, a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return ok
}

// leadsTo reports whether a is in the sorted list, or NAT64 translates it to an address in the list. With 464XLAT, this
// host's connections to an IPv4 address go to such an IPv6 address.
func leadsTo(a netip.Addr, sorted []netip.Addr) bool {
	return hasAddr(sorted, a) || hasAddr(sorted, source.Translated(a))
}
