package planner

import (
	"net/netip"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// Options holds the operator's decisions. The options do not change during the life of a Planner: a reload creates a
// new Planner and passes the plan of the old Planner to it.
type Options struct {
	// Families lists the families to serve. If Families is empty, the families of the host's addresses are served,
	// loopback included.
	Families []plan.Family
	// NodeName is the node name of endpoints on this host. If NodeName is empty, the name of the Node object is used.
	NodeName string
	// NodeAddresses lists the host's own addresses. A family that is not in the list uses the addresses of the Node
	// object, or else the source address of its default route.
	NodeAddresses []netip.Addr
	// Zone is compared with topology hints. If Zone is empty, the zone of the Node object is used.
	Zone string
	// LocalAsCluster treats a Local traffic policy like Cluster for a ServicePort without an endpoint on this host,
	// if the host has no Node object. Otherwise connections to such a ServicePort are dropped.
	LocalAsCluster bool
	// MasqueradeAll rewrites the source of every connection to a ClusterIP.
	MasqueradeAll bool
	// Pods configures how pods of this host are distinguished from other sources.
	Pods PodDetection
	// NodePorts selects the addresses that accept NodePorts.
	NodePorts NodePortAddresses
	// ServiceCIDRs are added to the ranges of the ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix
	// OwnRoutes adds uplinks to the plan, for routes to Services.
	OwnRoutes bool
	// AllowExternalIPs and AllowLoadBalancers are the only ranges that the external IPs and the load-balancer
	// addresses of Services from the API server may come from. An address of this host needs AllowHostIPs or
	// AllowHostLoadBalancers, even if a range contains it (CVE-2020-8554). Services from manifests are exempt.
	AllowExternalIPs, AllowLoadBalancers []netip.Prefix
	AllowHostIPs, AllowHostLoadBalancers bool
	// OwnPorts maps the TCP ports that the daemon listens on to their keys in the configuration. No Service gets one
	// of these ports at an address of this host.
	OwnPorts map[uint16]string
	// DenyEndpoints lists the ranges that no endpoint may be in. DenyHostEndpoints refuses the host's own addresses
	// in EndpointSlices from the API server, as long as the host has no Node object. On a Node, such addresses belong
	// to pods in the host's network.
	DenyEndpoints     []netip.Prefix
	DenyHostEndpoints bool
	// NodePortRange is the only range that the NodePorts and health check ports of Services from the API server may
	// come from. NodePortRange protects the ports of this host's programs. Services from manifests are exempt.
	NodePortRange PortRange
	// Budget limits the memory that Services use. The zero value sets no limit.
	Budget Budget
	// Checks configures the checks of endpoints.
	Checks Checks
	// LongLived lists Services that use the fast path, in addition to the Services that ask for it themselves.
	LongLived map[tracker.Name]bool
	// Held returns the claims that Contested returned when the last process ended. Only the first plan calls Held. A
	// previous plan takes precedence. Held may be nil.
	Held func() []source.Holding
	// Before, which may be nil, is called with the key of each Service before its planning. Tests make Before panic.
	Before func(source.Key)
	// beforeClaims is called with each Service before its claims are collected. Tests use beforeClaims to cause a
	// panic. For one version of a Service, beforeClaims must panic always or never; otherwise the planner removes
	// claims that it did not add.
	beforeClaims func(*source.Service)
}

// PodDetection configures how pods of this host are distinguished from other sources. In a family without any
// setting, no source counts as a pod: connections to ClusterIPs keep their source address, and no connection is
// short-circuited.
type PodDetection struct {
	// CIDRs lists the ranges that pods get their addresses from.
	CIDRs []netip.Prefix
	// NodeCIDRs adds the pod ranges of the Node object.
	NodeCIDRs bool
	// Interfaces lists the devices on which packets of pods arrive: "cni0", or "veth*" for a prefix.
	Interfaces []string
}

// NodePortAddresses selects the host's addresses that accept NodePorts.
//
// Only the listed addresses accept NodePorts. Unlike with kube-proxy, ranges of one family leave the other family
// without NodePorts, and the zero value selects no address. Loopback must be listed explicitly (KEP-6032): a wider
// range does not include it.
type NodePortAddresses struct {
	// Primary selects one address of each family: the first of NodeAddresses or of the Node object that is on the
	// host, or else the source address of the default route. If no such address is known, Primary selects none.
	Primary bool
	// Localhost selects 127.0.0.1 and ::1.
	Localhost bool
	// Prefixes selects addresses by range; 0.0.0.0/0 and ::/0 select all addresses except loopback. A range within
	// 127.0.0.0/8 or ::1/128 has the effect of Localhost in its family.
	Prefixes []netip.Prefix
}
