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

// ServiceRangeNetworkID and ServiceRangeRouteID are IDs of faults in the proxy.service_cidrs setting.
const (
	ServiceRangeNetworkID = "service-range-network"
	ServiceRangeRouteID   = "service-range-route"
)

const serviceCIDRsKey = "proxy.service_cidrs"

// serviceCIDRs collects the ranges from which the API server allocates ClusterIPs.
type serviceCIDRs struct {
	host       *nodeinfo.Host
	apiServers []netip.Addr
	// dropRanges holds the ranges in which Edgeway drops connections to unused addresses.
	dropRanges []netip.Prefix
	// knownRanges holds the ranges in which Edgeway refuses external IPs, because a tenant could otherwise use an
	// address before the API server allocates it as a ClusterIP.
	knownRanges []netip.Prefix
	problems    []fault.Fault
}

// ServiceCIDRFaults returns the faults that the ranges in proxy.service_cidrs cause on a host.
func ServiceCIDRFaults(ranges []netip.Prefix, host *nodeinfo.Host) []fault.Fault {
	s := serviceCIDRs{host: host}
	s.addSetting(ranges)
	return s.problems
}

// addSetting adds the configured ranges. If a range overlaps a network of this host, or contains the API server or a
// default gateway of the host, Edgeway does not drop connections to the range's unused addresses, because the host
// would otherwise lose its network connection. A range may contain a name server, because many hosts use the cluster's
// DNS Service.
func (s *serviceCIDRs) addSetting(ranges []netip.Prefix) {
	for _, c := range ranges {
		s.knownRanges = append(s.knownRanges, c)
		if own := s.overlappingNetwork(c); own.IsValid() {
			s.problems = append(s.problems, settingFault(serviceCIDRsKey,
				fault.New(ServiceRangeNetworkID, fault.Problem, settingWithout(ranges, c),
					"%s overlaps %s, a network of this host: Edgeway does not drop connections to unused "+
						"addresses of the range", c, own)))
			continue
		}
		why := cmp.Or(s.serverFault(c), s.gatewayFault(c))
		s.addRange(c, fault.Object{Name: serviceCIDRsKey}, "", why)
		i := slices.IndexFunc(s.host.Routes, func(r nodeinfo.Route) bool { return r.Range == c })
		if i >= 0 && why == "" {
			fix := settingWithout(ranges, c) + "  # if a host has an address in " + c.String()
			s.problems = append(s.problems, settingFault(serviceCIDRsKey, fault.New(
				ServiceRangeRouteID, fault.Notice, fix,
				"%s overlaps the route to %s: Edgeway drops connections to unused addresses of the range",
				c, s.host.Routes[i])))
		}
	}
}

// settingWithout formats the proxy.service_cidrs setting without the range c.
func settingWithout(ranges []netip.Prefix, c netip.Prefix) string {
	var others []string
	for _, other := range ranges {
		if other != c {
			others = append(others, fmt.Sprintf("%q", other))
		}
	}
	return fmt.Sprintf("%s = [%s]", serviceCIDRsKey, strings.Join(others, ", "))
}

// addObjects adds the ranges of ServiceCIDR objects. addObjects ignores a range that overlaps a network of this host.
func (s *serviceCIDRs) addObjects(objects []*source.ServiceCIDR) {
	for _, object := range objects {
		for _, c := range object.CIDRs {
			why := cmp.Or(s.serverFault(c), s.gatewayFault(c))
			if own := s.overlappingNetwork(c); own.IsValid() {
				why = fmt.Sprintf("overlaps %s, a network of this host: Edgeway ignores the range; "+
					"use a range from which only ClusterIPs are allocated", own)
			} else {
				s.knownRanges = append(s.knownRanges, c)
			}
			s.addRange(c, object.Key(), "spec.cidrs", why)
		}
	}
}

// addRange adds the range c to dropRanges or, if why is not "", adds a fault that contains why.
func (s *serviceCIDRs) addRange(c netip.Prefix, object fault.Object, field, why string) {
	if why == "" {
		s.dropRanges = append(s.dropRanges, c)
		return
	}
	s.problems = append(s.problems, fault.Fault{
		ID: source.ObjectFaultID, Severity: fault.Warning, Object: object, Field: field, Message: fmt.Sprintf("%s %s", c, why),
	})
}

const notDropped = "Edgeway does not drop connections to unused addresses of the range; use a range from which only ClusterIPs are allocated"

// serverFault returns the fault text for a range that contains an address of the API server, or "" for any other range.
func (s *serviceCIDRs) serverFault(c netip.Prefix) string {
	i := slices.IndexFunc(s.apiServers, c.Contains)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("contains the address %s of the API server or of its proxy: %s, "+
		"or use a server or proxy address outside the range in the kubeconfig", s.apiServers[i], notDropped)
}

// gatewayFault returns the fault text for a range that contains a default gateway, or "" for any other range.
func (s *serviceCIDRs) gatewayFault(c netip.Prefix) string {
	i := slices.IndexFunc(s.host.Gateways, c.Contains)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("contains the address %s of a default gateway of this host: %s", s.host.Gateways[i], notDropped)
}

// overlappingNetwork returns a network of this host that overlaps the range, or the zero Prefix if there is none.
func (s *serviceCIDRs) overlappingNetwork(c netip.Prefix) netip.Prefix {
	i := slices.IndexFunc(s.host.Networks, c.Overlaps)
	if i < 0 {
		return netip.Prefix{}
	}
	return s.host.Networks[i]
}
