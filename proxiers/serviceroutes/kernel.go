package serviceroutes

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
	"edgeway/proxiers/rtnl"
)

// Protocol is the routing protocol number of Edgeway's routes. No other known program uses protocol number 119.
// Edgeway's packages define a name for the number in /etc/iproute2/rt_protos.d.
const Protocol = 119

// metric is the metric of Edgeway's routes. If a destination has two routes, the kernel uses the route with the lower
// metric, so other programs' routes take precedence.
const metric = 1_000_000

// kernel reads and writes the routing tables through a netlink socket that stays open.
type kernel struct{ *netlink.Handle }

func openKernel() (*kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket: %w", err)
	}
	return &kernel{h}, nil
}

// linkIndex returns the index of a network interface, or 0 if the interface does not exist or is down.
func (k *kernel) linkIndex(name string) (int, error) {
	l, err := k.LinkByName(name)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return 0, nil
	}
	return l.Attrs().Index, nil
}

// ownRoutes returns all routes with Edgeway's protocol number, in any routing table.
func (k *kernel) ownRoutes(families []plan.Family) (out []netlink.Route, err error) {
	for _, family := range families {
		found, err := k.list(family, netlink.RT_FILTER_TABLE,
			func(r *netlink.Route) bool { return r.Protocol == Protocol })
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// foreignRoutes holds other programs' routes in the main routing table.
type foreignRoutes struct {
	// reachable reports, for each destination, whether the route with the lowest metric forwards packets.
	reachable map[netip.Prefix]bool
	// lengths holds the destinations' prefix lengths, longest first. The kernel prefers routes with longer prefixes.
	lengths []int
}

// listForeign lists other programs' routes to the destinations for which matters returns true.
func (k *kernel) listForeign(family plan.Family, matters func(netip.Prefix) bool) (*foreignRoutes, error) {
	found, err := k.list(family, 0,
		func(r *netlink.Route) bool { return r.Protocol != Protocol && matters(rtnl.Prefix(r.Dst)) })
	if err != nil {
		return nil, err
	}
	return newForeignRoutes(found), nil
}

// newForeignRoutes indexes other programs' routes by destination. newForeignRoutes omits dead routes, because the
// kernel ignores them.
func newForeignRoutes(routes []netlink.Route) *foreignRoutes {
	c := &foreignRoutes{reachable: map[netip.Prefix]bool{}}
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
	for i := range routes {
		r := &routes[i]
		to := rtnl.Prefix(r.Dst)
		if _, known := c.reachable[to]; known || r.Flags&unix.RTNH_F_DEAD != 0 {
			continue
		}
		c.reachable[to] = delivers(r)
		if !slices.Contains(c.lengths, to.Bits()) {
			c.lengths = append(c.lengths, to.Bits())
		}
	}
	slices.SortFunc(c.lengths, func(a, b int) int { return cmp.Compare(b, a) })
	return c
}

// covers reports whether a single route forwards the packets to all addresses in the prefix.
func (c *foreignRoutes) covers(to netip.Prefix) bool {
	for _, bits := range c.lengths {
		if bits > to.Bits() {
			continue
		}
		if leads, known := c.reachable[netip.PrefixFrom(to.Addr(), bits).Masked()]; known {
			return leads
		}
	}
	return false
}

// delivers reports whether the kernel forwards packets through the route. Routes of types other than unicast and local
// either reject packets (unreachable, blackhole, prohibit) or end the lookup in the routing table (throw).
func delivers(r *netlink.Route) bool { return r.Type == unix.RTN_UNICAST || r.Type == unix.RTN_LOCAL }

// list filters the routes while reading them from the kernel, because a router may have a million routes.
func (k *kernel) list(family plan.Family, mask uint64,
	keep func(*netlink.Route) bool,
) (out []netlink.Route, err error) {
	out, err = rtnl.Retry(func() (out []netlink.Route, err error) {
		err = k.RouteListFilteredIter(rtnl.Family(family), &netlink.Route{}, mask, func(r netlink.Route) bool {
			if keep(&r) {
				out = append(out, r)
			}
			return true
		})
		return out, err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s routes: %w", family, err)
	}
	return out, nil
}

// hasForeignRoute reports whether the kernel's route lookup returns another program's route that covers the whole
// destination.
func (k *kernel) hasForeignRoute(to netip.Prefix) (bool, error) {
	at := to.Addr()
	if !to.IsSingleIP() {
		at = at.Next() // the first address of a network may denote the whole network
	}
	found, err := k.RouteGetWithOptions(at.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return false, nil
	// The route rejects packets, because its type is unreachable, blackhole or prohibit.
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EACCES):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lookup of a route to %s: %w", at, err)
	}
	return slices.ContainsFunc(found, func(r netlink.Route) bool {
		return r.Protocol != Protocol && delivers(&r) && rtnl.Prefix(r.Dst).Bits() <= to.Bits()
	}), nil
}

// put adds a route. If replace is true, put replaces Edgeway's route to the same destination. put never replaces
// another program's route with the same destination and metric.
func (k *kernel) put(r route, replace bool) error {
	write := k.RouteAdd
	if replace {
		write = k.RouteReplace
	}
	if err := write(r.netlink()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("route to %s from %s: %w", r.to, r.from, err)
	}
	return nil
}

// remove deletes a route, and returns nil if the route no longer exists.
func (k *kernel) remove(r netlink.Route) error {
	r.Flags = 0 // the kernel rejects the flags that it reports for a link that is down
	if err := k.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removal of the route to %s: %w", r.Dst, err)
	}
	return nil
}

func (r route) netlink() *netlink.Route {
	out := &netlink.Route{
		Dst: &net.IPNet{IP: r.to.Addr().AsSlice(), Mask: net.CIDRMask(r.to.Bits(), r.to.Addr().BitLen())},
		Src: r.from.AsSlice(), LinkIndex: r.link,
		Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Protocol: Protocol, Priority: metric,
	}
	if r.to.Addr().Is4() {
		out.Scope = unix.RT_SCOPE_LINK // IPv6 routes have no scope
	}
	return out
}

// parse is the inverse of route.netlink. parse returns false if the table, type, metric, next hop or TOS differs from
// the values that route.netlink sets. parse ignores the other fields, such as the scope.
func parse(raw netlink.Route) (route, bool) {
	from, _ := netip.AddrFromSlice(raw.Src)
	r := route{rtnl.Prefix(raw.Dst), from.Unmap(), raw.LinkIndex}
	return r, raw.Table == unix.RT_TABLE_MAIN && raw.Type == unix.RTN_UNICAST && raw.Priority == metric &&
		raw.Gw == nil && raw.Via == nil && len(raw.MultiPath) == 0 && raw.Tos == 0
}
