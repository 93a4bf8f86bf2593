package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// The IDs of what is wrong with proxy.service_cidrs.
const (
	ServiceRangeNetworkID = "service-range-network"
	ServiceRangeRouteID   = "service-range-route"
)

const serviceCIDRsKey = "proxy.service_cidrs"

// serviceCIDRs are the ranges that ClusterIPs come from.
type serviceCIDRs struct {
	host       *nodeinfo.Host
	apiServers []netip.Addr
	// drop are the ranges whose unused addresses are dropped.
	drop []netip.Prefix
	// known are the ranges that no external IP may be in: a tenant would take a ClusterIP before it is allocated.
	known    []netip.Prefix
	problems []fault.Fault
}

// CheckServiceCIDRs returns what is wrong with proxy.service_cidrs on a host.
func CheckServiceCIDRs(ranges []netip.Prefix, host *nodeinfo.Host) []fault.Fault {
	s := serviceCIDRs{host: host}
	s.addSetting(ranges)
	return s.problems
}

// addSetting adds the ranges of the configuration. Dropping the unused addresses of a range that overlaps a network of
// this host, or holds its router or API server, would cut the host off. A range may hold a name server: a host may
// well use the cluster's DNS Service.
func (s *serviceCIDRs) addSetting(ranges []netip.Prefix) {
	for _, c := range ranges {
		s.known = append(s.known, c)
		if own := s.overlapsHost(c); own.IsValid() {
			s.add(fault.New(ServiceRangeNetworkID, fault.Problem, without(ranges, c),
				"%s overlaps %s, a network of this host: the unused addresses of the range are not dropped", c, own))
			continue
		}
		why := cmp.Or(s.holdsServer(c), s.holdsGateway(c))
		s.take(c, fault.Object{Name: serviceCIDRsKey}, "", why)
		i := slices.IndexFunc(s.host.Routes, func(r nodeinfo.Route) bool { return r.Range == c })
		if i >= 0 && why == "" {
			fix := without(ranges, c) + "  # if a host has an address in " + c.String()
			s.add(fault.New(ServiceRangeRouteID, fault.Notice, fix,
				"%s overlaps the route to %s: connections to addresses of the range that no Service has are dropped", c,
				s.host.Routes[i]))
		}
	}
}

// add adds a fault of the setting, which concerns no connection to a Service.
func (s *serviceCIDRs) add(f fault.Fault) {
	s.problems = append(s.problems, f.Of(serviceCIDRsKey).For(fault.Scope{Clients: fault.Nobody}))
}

// without returns the setting without a range.
func without(ranges []netip.Prefix, c netip.Prefix) string {
	var others []string
	for _, other := range ranges {
		if other != c {
			others = append(others, fmt.Sprintf("%q", other))
		}
	}
	return fmt.Sprintf("%s = [%s]", serviceCIDRsKey, strings.Join(others, ", "))
}

// addObjects adds the ranges of ServiceCIDR objects. One that overlaps a network of this host is ignored.
func (s *serviceCIDRs) addObjects(objects []*source.ServiceCIDR) {
	for _, object := range objects {
		for _, c := range object.CIDRs {
			why := cmp.Or(s.holdsServer(c), s.holdsGateway(c))
			if own := s.overlapsHost(c); own.IsValid() {
				why = fmt.Sprintf("overlaps %s, a network of this host: the range is ignored; "+
					"make it a range that only ClusterIPs come from", own)
			} else {
				s.known = append(s.known, c)
			}
			s.take(c, object.Key().Object(), "spec.cidrs", why)
		}
	}
}

// take adds a range to drop, or the problem that it has.
func (s *serviceCIDRs) take(c netip.Prefix, object fault.Object, field, why string) {
	if why == "" {
		s.drop = append(s.drop, c)
		return
	}
	s.problems = append(s.problems, fault.Fault{
		ID: source.ObjectFault, Severity: fault.Warning, Object: object, Field: field, Message: fmt.Sprintf("%s %s", c, why),
	})
}

const notDropped = "its unused addresses are not dropped; make it a range that only ClusterIPs come from"

// holdsServer returns the fault of a range that holds an address of the API server, and "" if there is none.
func (s *serviceCIDRs) holdsServer(c netip.Prefix) string {
	i := slices.IndexFunc(s.apiServers, c.Contains)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("has the address %s of the API server or of the proxy to it: %s, "+
		"or have the kubeconfig name an address outside of it", s.apiServers[i], notDropped)
}

// holdsGateway returns the fault of a range that holds a default gateway, and "" if there is none.
func (s *serviceCIDRs) holdsGateway(c netip.Prefix) string {
	i := slices.IndexFunc(s.host.Gateways, c.Contains)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("has the address %s of a default gateway of this host: %s", s.host.Gateways[i], notDropped)
}

// overlapsHost returns a network of this host that a range overlaps, or an invalid prefix.
func (s *serviceCIDRs) overlapsHost(c netip.Prefix) netip.Prefix {
	i := slices.IndexFunc(s.host.Networks, c.Overlaps)
	if i < 0 {
		return netip.Prefix{}
	}
	return s.host.Networks[i]
}
