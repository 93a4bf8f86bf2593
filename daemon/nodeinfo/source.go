package nodeinfo

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// preferredSource returns the source address of packets that use one of the given routes. All routes must belong to the
// same family, with the kernel's preferred route first.
//
// With one exception, the returned address never differs from the kernel's choice in a way that an operator could
// notice. The route's own source ("src" in ip-route(8)) wins. For IPv4, the next choices are the first address in the
// gateway's network and then the first address of the interface. Secondary IPv4 addresses are never eligible
// (inet_select_addr). For IPv6, global addresses win over unique local addresses (RFC 6724). If the route's interface
// has no address, preferredSource uses an address of another interface. The exception is that preferredSource prefers a
// stable IPv6 address to a temporary address, because the NodePort address should not change.
func preferredSource(routes []route, addrs []address) (address, bool) {
	for _, accepts := range []func(route, address) bool{route.sendsFrom, route.allowsFallback} {
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

// sendsFrom reports whether the address a is the route's source or, if the route has none, an eligible address of the
// route's interface.
func (r route) sendsFrom(a address) bool {
	if r.source.IsValid() {
		return a.addr == r.source // the address may be on any interface
	}
	return a.link == r.link && r.allowsFallback(a)
}

// allowsFallback reports whether the address a is eligible if the route's interface has no address.
func (r route) allowsFallback(a address) bool {
	if a.addr.Is6() != r.is6 || a.scope != unix.RT_SCOPE_UNIVERSE {
		return false
	}
	// IFA_F_SECONDARY (IPv4) has the same value as IFA_F_TEMPORARY (IPv6).
	return a.addr.Is6() || a.flags&unix.IFA_F_SECONDARY == 0
}

// cost ranks the candidates. preferredSource chooses the first candidate with the lowest cost.
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
