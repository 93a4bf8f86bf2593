package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/daemon/files"
	"edgeway/daemon/nodeinfo"
)

// Kernel is the System that inspects the network namespace of the calling thread.
type Kernel struct{}

// Read implements System.
func (Kernel) Read(path string) (string, error) {
	raw, err := files.Read(path, files.SmallLimit)
	return strings.TrimSpace(string(raw)), err
}

// NextHop implements System.
func (Kernel) NextHop(to netip.Addr) (nodeinfo.NextHop, error) { return nodeinfo.LookupRoute(to) }

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

// AdvertisedLinks implements System.
func (Kernel) AdvertisedLinks() ([]string, error) {
	found, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Protocol: unix.RTPROT_RA},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list of routes: %w", err)
	}
	var out []string
	for _, r := range found {
		if r.Gw == nil {
			continue // the route leads to a prefix on the link
		}
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil && !slices.Contains(out, link.Attrs().Name) {
			out = append(out, link.Attrs().Name)
		}
	}
	return out, nil
}
