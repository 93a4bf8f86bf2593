package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
)

// serviceCIDRs are the ranges that ClusterIPs come from.
type serviceCIDRs struct {
	// drop are the ranges whose unused addresses are dropped.
	drop []netip.Prefix
	// known are the ranges that no external IP may be in: a tenant would take a ClusterIP before it is allocated.
	known    []netip.Prefix
	problems []source.Problem
}

// serviceCIDRs sorts the ranges of the configuration and of the ServiceCIDR objects. A range that holds the API server
// or a gateway is not dropped, because this host would lose its API server or its router. A range may hold a name
// server: a host may well use the cluster's DNS Service. An object that overlaps a network of this host is ignored,
// because dropping its unused addresses would cut the host off from its neighbours.
func (o *Options) serviceCIDRs(snap *tracker.Snapshot, host *nodeinfo.Host) (out serviceCIDRs) {
	for _, c := range o.ServiceCIDRs {
		out.known = append(out.known, c)
		setting := source.Key{Kind: source.KindSetting, Name: "proxy.service_cidrs"}
		out.take(c, setting, "", cmp.Or(holdsServer(c, snap.APIServers), holdsGateway(c, host.Gateways)))
	}
	for _, object := range snap.ServiceCIDRs {
		for _, c := range object.CIDRs {
			own := o.overlapsHost(c, host.Networks)
			if own == "" {
				out.known = append(out.known, c)
			}
			out.take(c, object.Key(), "spec.cidrs", cmp.Or(own, holdsServer(c, snap.APIServers), holdsGateway(c, host.Gateways)))
		}
	}
	return out
}

// take adds a range to drop, or the problem that it has.
func (s *serviceCIDRs) take(c netip.Prefix, object source.Key, field, why string) {
	if why == "" {
		s.drop = append(s.drop, c)
		return
	}
	s.problems = append(s.problems, source.Problem{Object: object, Field: field, Message: fmt.Sprintf("%s %s", c, why)})
}

const notDropped = "its unused addresses are not dropped; make it a range that only ClusterIPs come from"

// holdsServer returns the fault of a range that holds an address of the API server, and "" if there is none.
func holdsServer(c netip.Prefix, servers []netip.Addr) string {
	i := slices.IndexFunc(servers, c.Contains)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("has the address %s of the API server or of the proxy to it: %s, or have the kubeconfig name an address outside of it",
		servers[i], notDropped)
}

// holdsGateway returns the fault of a range that holds a default gateway, and "" if there is none.
func holdsGateway(c netip.Prefix, gateways []netip.Addr) string {
	i := slices.IndexFunc(gateways, c.Contains)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("has the address %s of a default gateway of this host: %s", gateways[i], notDropped)
}

// overlapsHost returns the fault of an object's range that overlaps a network of this host, and "" if there is none. The
// operator may set such a range in the configuration.
func (o *Options) overlapsHost(c netip.Prefix, networks []netip.Prefix) string {
	within := func(set netip.Prefix) bool { return set.Overlaps(c) && set.Bits() <= c.Bits() }
	i := slices.IndexFunc(networks, c.Overlaps)
	if i < 0 || slices.ContainsFunc(o.ServiceCIDRs, within) {
		return ""
	}
	return fmt.Sprintf("overlaps %s, a network of this host: the range is ignored; make it a range that only ClusterIPs come from, or set it in proxy.service_cidrs",
		networks[i])
}
