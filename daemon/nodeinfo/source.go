package nodeinfo

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// preferredSource gives the address that packets by the routes, all of one family and the first one
// preferred, are sent from.
//
// It follows the kernel where an operator could tell the difference: the route's own source ("src" of
// ip-route(8)); for IPv4 the first address of the gateway's network, else the first of the interface,
// secondary ones never (inet_select_addr); for IPv6 global before unique local ones (RFC 6724); any
// interface's address when the route's own has none. Where the kernel would take a temporary IPv6
// address, this takes the stable one beside it, as NodePorts should stay where they are.
func preferredSource(routes []route, addrs []address) (address, bool) {
	for _, accepts := range []func(route, address) bool{route.sendsFrom, route.borrows} {
		for _, r := range routes {
			var candidates []address
			for _, a := range addrs {
				if accepts(r, a) {
					candidates = append(candidates, a)
				}
			}
			if len(candidates) > 0 {
				nearest := func(a, b address) int { return cmp.Compare(r.cost(a), r.cost(b)) }
				return slices.MinFunc(candidates, nearest), true
			}
		}
	}
	return address{}, false
}

// sendsFrom reports whether a is the route's source, or may be chosen on its interface.
func (r route) sendsFrom(a address) bool {
	if r.source.IsValid() {
		return a.addr == r.source // on any interface
	}
	return a.link == r.link && r.borrows(a)
}

// borrows reports whether a may be chosen when the route's interface has no address.
func (r route) borrows(a address) bool {
	if a.addr.Is6() != r.is6 || a.scope != unix.RT_SCOPE_UNIVERSE {
		return false
	}
	// IFA_F_SECONDARY of IPv4 has the same value as IFA_F_TEMPORARY of IPv6.
	return a.addr.Is6() || a.flags&unix.IFA_F_SECONDARY == 0
}

// cost orders candidates; the first of the cheapest is taken.
func (r route) cost(a address) int {
	if a.addr.Is4() {
		if r.gateway.IsValid() && a.prefix.Contains(r.gateway) {
			return 0
		}
		return 1
	}
	cost := 0
	if a.flags&unix.IFA_F_DEPRECATED != 0 {
		cost += 4
	}
	if uniqueLocal(a.addr) {
		cost += 2
	}
	if a.flags&unix.IFA_F_TEMPORARY != 0 {
		cost++
	}
	return cost
}

func uniqueLocal(a netip.Addr) bool { return a.Is6() && a.IsPrivate() }
