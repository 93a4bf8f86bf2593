// Package nodeinfo watches this host's addresses, gateways and name servers.
//
// The package subscribes to rtnetlink events, and rereads the whole network state after each event. An event only
// triggers a read, so the package still detects all changes after the kernel has dropped events.
package nodeinfo

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Host is the host's network state at one point in time. Host is immutable.
type Host struct {
	// Addrs are the addresses of all interfaces that are up, including loopback, sorted by address and then by
	// interface. Addrs omits IPv6 addresses that duplicate address detection is still testing or has rejected.
	Addrs []Addr
	// Gateways lists the gateways of the default routes in the main routing table, sorted and without zones. A host has
	// several gateways if it has several default routes, or a default route with several next hops.
	Gateways []netip.Addr
	// Broadcasts are the broadcast and network addresses of the host's IPv4 networks, sorted.
	Broadcasts []netip.Addr
	// Networks are the networks of this host's interfaces, sorted. Networks omits link-local networks and the
	// networks of loopback and dummy devices. For an address without a network, Networks contains the address itself.
	Networks []netip.Prefix
	// Routes holds, for each of Options.Ranges, the widest route that overlaps the range and leads beyond this host's
	// networks.
	Routes []Route
	// NameServers are the name servers from /etc/resolv.conf and systemd-resolved, sorted, without loopback and
	// link-local addresses.
	NameServers []netip.Addr
}

// Route is a route in the main routing table that leads through a gateway or a tunnel. Route is neither a default route
// nor one of the routes 0.0.0.0/1 and 128.0.0.0/1, which OpenVPN adds to override a default route.
type Route struct {
	Range, To netip.Prefix
	Gateway   netip.Addr // Gateway is invalid if a tunnel is the next hop
	Interface string
}

// String returns text such as "10.0.0.0/8 via 192.0.2.1 on eth0".
func (r Route) String() string {
	return fmt.Sprintf("%s %s", r.To, NextHop{Gateway: r.Gateway, Interface: r.Interface})
}

// Addr is an address of an interface.
type Addr struct {
	// Addr has no zone.
	Addr      netip.Addr
	Interface string
	// Dummy reports whether the interface is a dummy device, which sends no packets to other hosts.
	Dummy bool
	// Bridge reports whether the interface is a bridge, such as the pod bridge.
	Bridge bool
	// Primary reports whether the host uses the address as the source address of connections through the default route.
	// Each family has at most one primary address, and none without a default route.
	Primary bool
}

func (a Addr) compare(b Addr) int {
	return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Interface, b.Interface))
}

func (h *Host) equal(o *Host) bool {
	return slices.Equal(h.Addrs, o.Addrs) && slices.Equal(h.Gateways, o.Gateways) &&
		slices.Equal(h.Broadcasts, o.Broadcasts) && slices.Equal(h.Networks, o.Networks) &&
		slices.Equal(h.Routes, o.Routes) && slices.Equal(h.NameServers, o.NameServers)
}
