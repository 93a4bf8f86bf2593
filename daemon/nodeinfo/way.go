package nodeinfo

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Way is how a packet of this host gets to an address.
type Way struct {
	// Source is the packet's source when the program that sends it binds none; invalid: the kernel gives none.
	Source netip.Addr
	// Gateway is the next router; invalid: the address is on the link, or this host's.
	Gateway   netip.Addr
	Interface string
	// Local says that the address is this host's.
	Local bool
	// NoCarrier says that nothing is at the other end of the interface.
	NoCarrier bool
}

// String gives "via 192.0.2.1 on eth0", "on eth0" or "to this host".
func (w Way) String() string {
	switch {
	case w.Local:
		return "to this host"
	case w.Gateway.IsValid():
		return fmt.Sprintf("via %s on %s", w.Gateway, w.Interface)
	}
	return "on " + w.Interface
}

// WayTo asks the kernel (RTM_GETROUTE), in the network namespace of the calling thread. Rules that look at a mark or
// a source are not known here: it is the way of a packet that has neither. The error is the kernel's: there is no way.
func WayTo(to netip.Addr) (Way, error) {
	found, err := netlink.RouteGet(to.Unmap().AsSlice())
	if err != nil {
		return Way{}, fmt.Errorf("no route to %s: %w", to, err)
	}
	if len(found) == 0 {
		return Way{}, fmt.Errorf("no route to %s: the kernel gives none", to)
	}
	r := found[0]
	w := Way{Source: addrOf(r.Src), Gateway: gatewayOf(netlink.NexthopInfo{Gw: r.Gw, Via: r.Via}), Local: r.Type == unix.RTN_LOCAL}
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Way{}, fmt.Errorf("interface of the route to %s: %w", to, err)
	}
	w.Interface = link.Attrs().Name
	w.NoCarrier = slices.Contains([]netlink.LinkOperState{netlink.OperDown, netlink.OperLowerLayerDown, netlink.OperNotPresent}, link.Attrs().OperState)
	return w, nil
}
