package nodeinfo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/rtnl"
)

// listHost reads the addresses of all interfaces that are up, determines the primary addresses, and reads the gateways.
// If the kernel's state changed during every attempt to read it, steady is false and the result may be incomplete.
func listHost(ignored []string, wanted routeFilter) (host *Host, steady bool, err error) {
	up, linksSteady, err := listLinks(ignored)
	if err != nil {
		return nil, false, err
	}
	addrs, steady, err := listAddrs(up)
	if err != nil {
		return nil, false, err
	}
	steady = steady && linksSteady
	host = &Host{}
	primary := map[netip.Addr]int{} // primary maps an address to the index of its interface
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, routesSteady, err := listRoutes(family, wanted)
		if err != nil {
			return nil, false, err
		}
		host.Routes = append(host.Routes, wanted.widestRoutes(found, up)...)
		routes := defaultRoutes(family, found, up)
		steady = steady && routesSteady
		if a, ok := preferredSource(routes, addrs); ok {
			primary[a.addr] = a.link
		}
		for _, r := range routes {
			if r.gateway.IsValid() {
				host.Gateways = append(host.Gateways, r.gateway)
			}
		}
	}
	host.Gateways = sorted(host.Gateways)
	for _, a := range addrs {
		index, ok := primary[a.addr]
		host.add(a, up[a.link], ok && index == a.link)
	}
	host.sort()
	return host, steady, nil
}

func (h *Host) add(a address, on link, primary bool) {
	addr := Addr{Addr: a.addr, Interface: on.name, Dummy: on.kind == dummy, Bridge: on.kind == bridge, Primary: primary}
	h.Addrs = append(h.Addrs, addr)
	h.Broadcasts = append(h.Broadcasts, a.broadcasts()...)
	if !on.loopback && (!addr.Dummy || primary) && !a.addr.IsLinkLocalUnicast() {
		h.Networks = append(h.Networks, a.networks()...)
	}
}

// sort sorts the slices that add has filled, and removes duplicates.
func (h *Host) sort() {
	slices.SortFunc(h.Addrs, Addr.compare)
	h.Addrs = slices.Compact(h.Addrs)
	h.Broadcasts = sorted(h.Broadcasts)
	slices.SortFunc(h.Networks, netip.Prefix.Compare)
	h.Networks = slices.Compact(h.Networks)
}

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// address is a usable address, with the properties that determine the choice of a source address.
type address struct {
	addr   netip.Addr
	prefix netip.Prefix
	link   int
	flags  int
	scope  int
	// broadcast is the configured broadcast address, or the zero value if none is configured.
	broadcast netip.Addr
}

// networks returns the networks that the address belongs to. If the address has a peer, the peer's network comes first.
func (a address) networks() []netip.Prefix {
	if a.prefix.Contains(a.addr) {
		return []netip.Prefix{a.prefix}
	}
	return []netip.Prefix{a.prefix, netip.PrefixFrom(a.addr, a.addr.BitLen())}
}

// broadcasts returns the configured broadcast address and, for an IPv4 address, the broadcast and network addresses of
// its network. A network of only two addresses has no broadcast address (RFC 3021).
func (a address) broadcasts() (out []netip.Addr) {
	if a.broadcast.IsValid() && !a.broadcast.IsUnspecified() && a.broadcast != a.addr {
		out = append(out, a.broadcast)
	}
	if a.addr.Is4() && !a.addr.IsLoopback() && a.prefix.Bits() > 0 && a.prefix.Bits() < 31 {
		first := a.prefix.Addr().As4()
		var last [4]byte
		binary.BigEndian.PutUint32(last[:], binary.BigEndian.Uint32(first[:])|^uint32(0)>>a.prefix.Bits())
		out = append(out, a.prefix.Addr(), netip.AddrFrom4(last))
	}
	return out
}

func listAddrs(up links) (addrs []address, steady bool, err error) {
	found, steady, err := retry(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, false, fmt.Errorf("list of addresses: %w", err)
	}
	for _, a := range found {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || up[a.LinkIndex].name == "" || !isUsable(a.Flags) {
			continue
		}
		// The network of an address with a peer is the peer's network.
		network := a.IPNet
		if a.Peer != nil {
			network = a.Peer
		}
		base, _ := netip.AddrFromSlice(network.IP)
		bits, _ := network.Mask.Size()
		addrs = append(addrs,
			address{addr, netip.PrefixFrom(base, bits).Masked(), a.LinkIndex, a.Flags, a.Scope, addrOf(a.Broadcast)})
	}
	return addrs, steady, nil
}

// isUsable reports whether the host responds at an address with the given flags. A host does not respond at a tentative
// address until duplicate address detection has succeeded, unless the address is optimistic (RFC 4429).
func isUsable(flags int) bool {
	if flags&unix.IFA_F_DADFAILED != 0 {
		return false
	}
	return flags&unix.IFA_F_TENTATIVE == 0 || flags&unix.IFA_F_OPTIMISTIC != 0
}

// route is a default route with one next hop.
type route struct {
	is6     bool
	metric  int
	link    int
	source  netip.Addr // source is invalid if the kernel chooses the source
	gateway netip.Addr // gateway is invalid if the destination is on the link
}

// defaultRoutes returns the default routes through interfaces that are up, with the kernel's preferred route first.
func defaultRoutes(family int, found []netlink.Route, up links) (routes []route) {
	for _, r := range found {
		if rtnl.Prefix(r.Dst).Bits() > 0 {
			continue
		}
		one := route{is6: family == unix.AF_INET6, metric: r.Priority, source: addrOf(r.Src)}
		for _, hop := range hopsOf(r) {
			if up[hop.LinkIndex].name != "" {
				one.link, one.gateway = hop.LinkIndex, gatewayOf(hop)
				routes = append(routes, one)
			}
		}
	}
	slices.SortStableFunc(routes, func(a, b route) int { return a.metric - b.metric })
	return routes
}

// gatewayOf returns the gateway of a next hop. The gateway of an IPv4 route may have an IPv6 address (RTA_VIA, since
// Linux 5.2).
func gatewayOf(hop netlink.NexthopInfo) netip.Addr {
	if via, ok := hop.Via.(*netlink.Via); ok {
		return addrOf(via.Addr)
	}
	return addrOf(hop.Gw)
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// retry calls the listing function again if the kernel reports that the objects changed during the call. After several
// attempts, retry returns the last result with steady set to false.
func retry[T any](listing func() ([]T, error)) (found []T, steady bool, err error) {
	found, err = rtnl.Retry(listing)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return found, false, nil
	}
	return found, err == nil, err
}
