package nodeinfo

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/rtnl"
)

// routeFilter selects the routes that Host includes: the default routes, and the routes that overlap a range.
type routeFilter struct {
	ranges []netip.Prefix
	ignore netlink.RouteProtocol
}

// has reports whether Host includes a route with the given destination and protocol.
func (w routeFilter) has(to netip.Prefix, protocol netlink.RouteProtocol) bool {
	if to.Bits() <= 1 {
		return to.Bits() == 0
	}
	return protocol != w.ignore && protocol != unix.RTPROT_KERNEL && slices.ContainsFunc(w.ranges, to.Overlaps)
}

// isRelevant reports whether an rtnetlink message (struct rtmsg and attributes) is about a route that Host includes.
func (w routeFilter) isRelevant(message []byte) bool {
	to, protocol, ok := rtnl.ParseRoute(message)
	return ok && w.has(to, netlink.RouteProtocol(protocol))
}

// listRoutes reads the main routing table, and returns only the routes that Host includes. A router may have a million
// other routes.
func listRoutes(family int, wanted routeFilter) (routes []netlink.Route, steady bool, err error) {
	routes, steady, err = retry(func() (routes []netlink.Route, err error) {
		err = netlink.RouteListFilteredIter(family, &netlink.Route{}, 0, func(r netlink.Route) bool {
			if r.Type == unix.RTN_UNICAST && wanted.has(rtnl.Prefix(r.Dst), r.Protocol) {
				routes = append(routes, r)
			}
			return true
		})
		return routes, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list of routes: %w", err)
	}
	return routes, steady, nil
}

// widestRoutes returns, for each range, the widest route that overlaps the range and uses a gateway or a tunnel.
func (w routeFilter) widestRoutes(found []netlink.Route, up links) (out []Route) {
	for _, wanted := range w.ranges {
		var widest Route
		for i := range found {
			if r, ok := newRoute(found[i], up); ok && r.To.Overlaps(wanted) &&
				(!widest.To.IsValid() || r.To.Bits() < widest.To.Bits()) {
				widest = r
			}
		}
		if widest.To.IsValid() {
			widest.Range = wanted
			out = append(out, widest)
		}
	}
	return out
}

// newRoute converts a kernel route that uses a gateway or a tunnel to a Route. The Route uses the first next hop whose
// interface is up.
func newRoute(found netlink.Route, up links) (r Route, ok bool) {
	r.To = rtnl.Prefix(found.Dst)
	for _, hop := range hopsOf(found) {
		on := up[hop.LinkIndex]
		r.Gateway, r.Interface = gatewayOf(hop), on.name
		if r.To.Bits() > 0 && on.name != "" && (r.Gateway.IsValid() || on.isTunnel()) {
			return r, true
		}
	}
	return r, false
}

func hopsOf(r netlink.Route) []netlink.NexthopInfo {
	hops := []netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
	for _, hop := range r.MultiPath {
		hops = append(hops, *hop)
	}
	return hops
}
