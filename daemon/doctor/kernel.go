package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/regular"
)

// Kernel is the System of the network namespace that the calling thread is in.
type Kernel struct{}

// Route is the way of packets that this host sends.
type Route struct {
	Local     bool // the host itself
	Interface string
	Gateway   netip.Addr // invalid: the link itself
	Source    netip.Addr // invalid: unknown
	// NoCarrier says that nothing is at the other end of the interface.
	NoCarrier bool
}

// String gives "via 192.0.2.1 dev eth0 src 192.0.2.10", as ip-route(8) does.
func (r Route) String() string {
	var parts []string
	if r.Gateway.IsValid() {
		parts = append(parts, "via "+r.Gateway.String())
	}
	parts = append(parts, "dev "+r.Interface)
	if r.Source.IsValid() {
		parts = append(parts, "src "+r.Source.String())
	}
	return strings.Join(parts, " ")
}

// Read implements System.
func (Kernel) Read(path string) (string, error) {
	raw, err := regular.Read(path, regular.Small)
	return strings.TrimSpace(string(raw)), err
}

// Route implements System. The error wraps the errno: ENETUNREACH without a route, EHOSTUNREACH, EINVAL or EACCES for
// routes of the types unreachable, blackhole and prohibit.
func (Kernel) Route(to netip.Addr) (Route, error) {
	found, err := netlink.RouteGet(net.IP(to.AsSlice()))
	if err != nil {
		return Route{}, err
	}
	if len(found) == 0 {
		return Route{}, unix.ENETUNREACH
	}
	r := found[0]
	out := Route{Local: r.Type == unix.RTN_LOCAL, Gateway: addrOf(r.Gw), Source: addrOf(r.Src)}
	if via, ok := r.Via.(*netlink.Via); ok {
		out.Gateway = addrOf(via.Addr)
	}
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Route{}, fmt.Errorf("interface %d: %w", r.LinkIndex, err)
	}
	out.Interface = link.Attrs().Name
	out.NoCarrier = slices.Contains([]netlink.LinkOperState{netlink.OperDown, netlink.OperLowerLayerDown, netlink.OperNotPresent}, link.Attrs().OperState)
	return out, nil
}

// Links implements System.
func (Kernel) Links() ([]string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list of interfaces: %w", err)
	}
	var out []string
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 && l.Flags&net.FlagLoopback == 0 {
			out = append(out, l.Name)
		}
	}
	return out, nil
}

// Advertised implements System.
func (Kernel) Advertised() ([]string, error) {
	found, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Protocol: unix.RTPROT_RA}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list of routes: %w", err)
	}
	var out []string
	for _, r := range found {
		if r.Gw == nil {
			continue // a prefix on the link
		}
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil && !slices.Contains(out, link.Attrs().Name) {
			out = append(out, link.Attrs().Name)
		}
	}
	return out, nil
}

// Listeners implements System.
func (Kernel) Listeners() ([]nodeinfo.Listener, error) { return nodeinfo.Listening() }

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
