// Package nodeinfo watches the addresses of this host, its gateways and its name servers.
//
// It listens to rtnetlink and reads everything anew when something moved: an event only says that it
// is time to look, so a lost event is no lost change.
package nodeinfo

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Host is what is known of the host at one moment. It is immutable.
type Host struct {
	// Addrs are the addresses of all interfaces that are up, loopback included, sorted by address,
	// then interface. IPv6 addresses that are still being checked for duplicates, or were found to be
	// one, are not among them: they become usable, and appear, a moment later or never.
	Addrs []Addr
	// Gateways are the next routers of the default routes of the main table, sorted, without zones. Several
	// routes, or several hops of one, may have several.
	Gateways []netip.Addr
	// Broadcasts are the broadcast and network addresses of the IPv4 networks of the addresses, sorted.
	Broadcasts []netip.Addr
	// Networks are the networks that the interfaces of this host are connected to, without those of loopback and dummy
	// devices and link-local ones, sorted. An address without a network has one of its own.
	Networks []netip.Prefix
	// Routes has, for each of Options.Ranges that overlaps a route beyond this host's networks, the widest such route.
	Routes []Route
	// NameServers are those of /etc/resolv.conf and of systemd-resolved, sorted, without loopback and link-local ones.
	NameServers []netip.Addr
}

// Route is a route of the main table through a gateway or a tunnel. It is not a default route, nor one of the halves
// 0.0.0.0/1 and 128.0.0.0/1 that OpenVPN adds to take its place.
type Route struct {
	Range, To netip.Prefix
	Gateway   netip.Addr // invalid: the tunnel itself
	Interface string
}

// String gives "10.0.0.0/8 via 192.0.2.1 on eth0".
func (r Route) String() string {
	return fmt.Sprintf("%s %s", r.To, Way{Gateway: r.Gateway, Interface: r.Interface})
}

// Addr is one address of one interface.
type Addr struct {
	// Addr has no zone.
	Addr      netip.Addr
	Interface string
	// Dummy says that the interface is of type dummy, which reaches nothing but this host.
	Dummy bool
	// Bridge says that the interface is a bridge, such as that of pods.
	Bridge bool
	// Primary says that the host's own connections to far places have this source: it is the preferred
	// source address of the default route. There is at most one of each family, and none without
	// a default route.
	Primary bool
}

func (a Addr) compare(b Addr) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	return strings.Compare(a.Interface, b.Interface)
}

func (h *Host) equal(o *Host) bool {
	return slices.Equal(h.Addrs, o.Addrs) && slices.Equal(h.Gateways, o.Gateways) &&
		slices.Equal(h.Broadcasts, o.Broadcasts) && slices.Equal(h.Networks, o.Networks) &&
		slices.Equal(h.Routes, o.Routes) && slices.Equal(h.NameServers, o.NameServers)
}
