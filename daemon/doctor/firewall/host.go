package firewall

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// ThisHost asks the kernel, in the network namespace of the calling thread.
type ThisHost struct{}

// LinkOf implements Host.
func (ThisHost) LinkOf(addr netip.Addr) string {
	links, _ := net.Interfaces()
	for _, l := range links {
		addrs, _ := l.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.AsSlice()) {
				return l.Name
			}
		}
	}
	return ""
}

// Route implements Host.
func (ThisHost) Route(to netip.Addr) (link string, source netip.Addr) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", source
	}
	source, _ = netip.AddrFromSlice(routes[0].Src)
	if l, err := net.InterfaceByIndex(routes[0].LinkIndex); err == nil {
		link = l.Name
	}
	return link, source.Unmap()
}
