package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/proxiers/rtnl"
)

const (
	// routeProtocol is the routing protocol number of Edgeway's routes and rules. Edgeway's distribution packages
	// define a name for this number in /etc/iproute2/rt_protos.d.
	routeProtocol = 237
	// RouteTable is the routing table that holds Edgeway's routes. The local routing table is unsuitable, because it
	// defines the host's addresses.
	RouteTable = 237
	// rulePriority is the priority of the routing rules, which come after the rule for the local routing table and
	// before most other programs' rules.
	rulePriority = 237
)

// routeManager manages the routes that make virtual servers' addresses local for incoming packets.
type routeManager struct {
	*netlink.Handle
	lo       int
	families []plan.Family
}

func openRoutes(families []plan.Family) (*routeManager, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket: %w", err)
	}
	// In every network namespace, lo is the first interface and has index 1.
	return &routeManager{Handle: h, lo: 1, families: families}, nil
}

// rule returns a routing rule that selects Edgeway's routing table for all packets except the host's own.
func rule(f plan.Family) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table, r.Protocol = rtnl.Family(f), rulePriority, RouteTable, routeProtocol
	r.IifName, r.Invert = "lo", true
	return r
}

func (r *routeManager) addRules() error {
	for _, f := range r.families {
		if err := r.RuleAdd(rule(f)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("routing rule for %s: %w", f, err)
		}
	}
	return nil
}

// lacksRules reports whether no routing rule points to Edgeway's routing table.
func (r *routeManager) lacksRules() (bool, error) {
	for _, f := range r.families {
		rules, err := r.RuleListFiltered(rtnl.Family(f), &netlink.Rule{Table: RouteTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return false, fmt.Errorf("list of routing rules for %s: %w", f, err)
		}
		if len(rules) > 0 {
			return false, nil
		}
	}
	return true, nil
}

func (r *routeManager) removeRules() error {
	for _, f := range r.families {
		for {
			err := r.RuleDel(rule(f))
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) {
				break
			}
			if err != nil {
				return fmt.Errorf("removal of the routing rule for %s: %w", f, err)
			}
		}
	}
	return nil
}

func (r *routeManager) route(a netip.Addr) *netlink.Route {
	out := &netlink.Route{
		Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, LinkIndex: r.lo,
		Table: RouteTable, Type: unix.RTN_LOCAL, Protocol: routeProtocol,
	}
	if a.Is4() {
		out.Scope = unix.RT_SCOPE_HOST
	}
	return out
}

func (r *routeManager) list() (map[netip.Addr]bool, error) {
	out := map[netip.Addr]bool{}
	for _, f := range r.families {
		err := r.RouteListFilteredIter(rtnl.Family(f), &netlink.Route{Table: RouteTable, Protocol: routeProtocol},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL, func(found netlink.Route) bool {
				if found.Dst != nil {
					a, _ := netip.AddrFromSlice(found.Dst.IP)
					out[a.Unmap()] = true
				}
				return true
			})
		if err != nil {
			return nil, fmt.Errorf("list %s routes: %w", f, err)
		}
	}
	return out, nil
}

func (r *routeManager) add(a netip.Addr) error {
	if err := r.RouteAdd(r.route(a)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("local route to %s: %w", a, err)
	}
	return nil
}

func (r *routeManager) remove(a netip.Addr) error {
	if err := r.RouteDel(r.route(a)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removal of the local route to %s: %w", a, err)
	}
	return nil
}

// validateAddr returns an error if the address belongs to another host on a directly connected network. A route to the
// address would cause this host to accept packets for the other host. validateAddr looks up the route first, because
// the list of neighbours may be long.
func (r *routeManager) validateAddr(a netip.Addr) error {
	ways, err := r.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.EACCES):
		return nil // this host has no route to a network that could contain the address
	case err != nil:
		return fmt.Errorf("lookup of a route to %s: %w", a, err)
	case len(ways) == 0 || ways[0].Protocol != unix.RTPROT_KERNEL || ways[0].Type != unix.RTN_UNICAST:
		return nil
	}
	family := rtnl.Family(plan.FamilyOf(a))
	neighbours, err := r.NeighList(ways[0].LinkIndex, family)
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	for _, n := range neighbours {
		if n.IP.Equal(a.AsSlice()) && n.State&(unix.NUD_FAILED|unix.NUD_INCOMPLETE|unix.NUD_NONE) == 0 {
			return fmt.Errorf("%w: %s is the address of a neighbour of this host: "+
				"this host must not intercept the neighbour's packets", proxiers.ErrRefused, a)
		}
	}
	list, err := r.RouteListFiltered(family, &netlink.Route{Gw: a.AsSlice()}, netlink.RT_FILTER_GW)
	if err != nil {
		return fmt.Errorf("list gateways: %w", err)
	}
	if len(list) > 0 {
		return fmt.Errorf("%w: %s is the address of a gateway of this host: "+
			"this host must not intercept the gateway's packets", proxiers.ErrRefused, a)
	}
	return nil
}
