package nodeinfo

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/rtnl"
)

// NextHop is the result of a route lookup for packets that this host sends to an address.
type NextHop struct {
	// Source is the source address of packets whose sender does not bind an address, or the zero value if the kernel
	// reports none.
	Source netip.Addr
	// Gateway is the next router, or the zero value if the destination is on the link or is this host.
	Gateway   netip.Addr
	Interface string
	// Local reports whether the address belongs to this host.
	Local bool
	// Default reports whether the address is reachable only through a default route.
	Default bool
	// NoCarrier reports whether the interface has no carrier, for example because the cable is unplugged.
	NoCarrier bool
}

// String returns text such as "via 192.0.2.1 on eth0", "on eth0" or "to this host".
func (w NextHop) String() string {
	switch {
	case w.Local:
		return "to this host"
	case w.Gateway.IsValid():
		return fmt.Sprintf("via %s on %s", w.Gateway, w.Interface)
	}
	return "on " + w.Interface
}

// LookupRoute asks the kernel for the route to an address (RTM_GETROUTE), in the network namespace of the calling
// thread. The lookup specifies neither a mark nor a source address. Routing rules that match a mark or a source address
// may therefore choose another route for an actual packet. LookupRoute returns the kernel's error if there is no route.
func LookupRoute(to netip.Addr) (NextHop, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return NextHop{}, fmt.Errorf("rtnetlink socket: %w", err)
	}
	defer handle.Close()
	found, err := handle.RouteGet(to.Unmap().AsSlice())
	if err != nil {
		return NextHop{}, fmt.Errorf("no route to %s: %w", to, err)
	}
	if len(found) == 0 {
		return NextHop{}, fmt.Errorf("the kernel returned no route to %s", to)
	}
	r := found[0]
	link, err := handle.LinkByIndex(r.LinkIndex)
	if err != nil {
		return NextHop{}, fmt.Errorf("interface of the route to %s: %w", to, err)
	}
	byDefault, err := usesDefaultRoute(handle, to)
	if err != nil {
		return NextHop{}, err
	}
	return NextHop{
		Source: addrOf(r.Src), Gateway: gatewayOf(netlink.NexthopInfo{Gw: r.Gw, Via: r.Via}),
		Interface: link.Attrs().Name, Local: r.Type == unix.RTN_LOCAL, Default: byDefault,
		NoCarrier: slices.Contains([]netlink.LinkOperState{
			netlink.OperDown, netlink.OperLowerLayerDown,
			netlink.OperNotPresent,
		}, link.Attrs().OperState),
	}, nil
}

// usesDefaultRoute reports whether the kernel's route to an address is a default route, or one of the two /1 routes
// that replace a default route. Kernels before 4.13 do not report the route that they use.
func usesDefaultRoute(handle *netlink.Handle, to netip.Addr) (bool, error) {
	found, err := handle.RouteGetWithOptions(to.Unmap().AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return false, fmt.Errorf("route to %s: %w", to, err)
	}
	return len(found) > 0 && rtnl.Prefix(found[0].Dst).Bits() <= 1, nil
}
