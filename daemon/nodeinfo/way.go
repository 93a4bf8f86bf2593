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
	// Default says that only a default route leads there.
	Default bool
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

// Ways asks the kernel for many ways at once: of each interface, it asks only once. It is for one goroutine, and for
// the network namespace of the thread that made it.
type Ways struct {
	handle *netlink.Handle
	links  map[int]*netlink.LinkAttrs
}

// NewWays makes Ways, which must be closed.
func NewWays() (*Ways, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("socket of rtnetlink: %w", err)
	}
	return &Ways{handle, map[int]*netlink.LinkAttrs{}}, nil
}

// Close frees the socket.
func (w *Ways) Close() { w.handle.Close() }

// To asks the kernel (RTM_GETROUTE). Rules that look at a mark or a source are not known here: it is the way of a
// packet that has neither. The error is the kernel's: there is no way.
func (w *Ways) To(to netip.Addr) (Way, error) {
	found, err := w.handle.RouteGet(to.Unmap().AsSlice())
	if err != nil {
		return Way{}, fmt.Errorf("no route to %s: %w", to, err)
	}
	if len(found) == 0 {
		return Way{}, fmt.Errorf("no route to %s: the kernel gives none", to)
	}
	r := found[0]
	link, err := w.link(r.LinkIndex)
	if err != nil {
		return Way{}, fmt.Errorf("interface of the route to %s: %w", to, err)
	}
	byDefault, err := w.byDefault(to)
	if err != nil {
		return Way{}, err
	}
	return Way{
		Source: addrOf(r.Src), Gateway: gatewayOf(netlink.NexthopInfo{Gw: r.Gw, Via: r.Via}), Interface: link.Name,
		Local: r.Type == unix.RTN_LOCAL, Default: byDefault,
		NoCarrier: slices.Contains([]netlink.LinkOperState{
			netlink.OperDown, netlink.OperLowerLayerDown,
			netlink.OperNotPresent,
		}, link.OperState),
	}, nil
}

// byDefault reports whether the route that the kernel takes is a default route, or one of two halves of it. A kernel
// before 4.13 does not say which route it takes.
func (w *Ways) byDefault(to netip.Addr) (bool, error) {
	found, err := w.handle.RouteGetWithOptions(to.Unmap().AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return false, fmt.Errorf("route to %s: %w", to, err)
	}
	return len(found) > 0 && prefixOf(found[0].Dst).Bits() <= 1, nil
}

func (w *Ways) link(index int) (*netlink.LinkAttrs, error) {
	if known := w.links[index]; known != nil {
		return known, nil
	}
	link, err := w.handle.LinkByIndex(index)
	if err != nil {
		return nil, err
	}
	w.links[index] = link.Attrs()
	return link.Attrs(), nil
}

// WayTo asks for one way, in the network namespace of the calling thread; see Ways.To.
func WayTo(to netip.Addr) (Way, error) {
	w, err := NewWays()
	if err != nil {
		return Way{}, err
	}
	defer w.Close()
	return w.To(to)
}
