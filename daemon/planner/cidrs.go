package planner

import (
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
)

// serviceCIDRs gives the ranges in which addresses that no Service has are dropped, and the problems of those that are
// left out: such a range must not take the host's way to its API server or to its next router. It may take that to a
// resolver: a host may well use the cluster's DNS Service.
func (o *Options) serviceCIDRs(snap *tracker.Snapshot, host *nodeinfo.Host) (kept []netip.Prefix, problems []source.Problem) {
	take := func(object source.Key, field string, cidrs []netip.Prefix) {
		for _, c := range cidrs {
			if why := covered(c, snap.APIServers, host.Gateways); why != "" {
				problems = append(problems, source.Problem{Object: object, Field: field, Message: fmt.Sprintf("%s %s", c, why)})
				continue
			}
			kept = append(kept, c)
		}
	}
	take(source.Key{Kind: source.KindSetting, Name: "proxy.service_cidrs"}, "", o.ServiceCIDRs)
	for _, c := range snap.ServiceCIDRs {
		take(c.Key(), "spec.cidrs", c.CIDRs)
	}
	return kept, problems
}

// covered says in words why a range cannot be one of Services; empty: it can.
func covered(c netip.Prefix, servers, gateways []netip.Addr) string {
	const instead = "its unused addresses are not dropped; make it a range that only ClusterIPs come from"
	if i := slices.IndexFunc(servers, c.Contains); i >= 0 {
		return fmt.Sprintf("has the address %s of the API server or of the proxy to it: %s, or have the kubeconfig name an address outside of it", servers[i], instead)
	}
	if i := slices.IndexFunc(gateways, c.Contains); i >= 0 {
		return fmt.Sprintf("has the address %s of a default gateway of this host: %s", gateways[i], instead)
	}
	return ""
}
