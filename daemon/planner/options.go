package planner

import (
	"net/netip"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// Options holds the operator's decisions. The options of a Planner never change: a reload creates a new Planner, which
// receives the plan of the old Planner.
type Options struct {
	// Families lists the families to serve. If Families is empty, Edgeway serves the families of the host's
	// addresses, including loopback addresses.
	Families []plan.Family
	// NodeName is the node name of endpoints on this host. The default is the name of the Node object.
	NodeName string
	// NodeAddresses lists the host's own addresses. For a family that is not in the list, Edgeway uses the addresses
	// of the Node object, or else the source address of the family's default route.
	NodeAddresses []netip.Addr
	// Zone is the zone of this host for topology hints. The default is the zone of the Node object.
	Zone string
	// LocalAsCluster, on a host without a Node object, treats a Local traffic policy like Cluster for a ServicePort
	// without an endpoint on this host. If LocalAsCluster is false, Edgeway drops connections to the ServicePort.
	LocalAsCluster bool
	// MasqueradeAll rewrites the source of every connection to a ClusterIP.
	MasqueradeAll bool
	// Pods configures how Edgeway distinguishes pods of this host from other sources.
	Pods PodDetection
	// NodePorts selects the addresses that accept NodePorts.
	NodePorts NodePortAddresses
	// ServiceCIDRs lists ranges in addition to the ranges of the ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix
	// OwnRoutes adds uplinks to the plan, which Edgeway's own routes to Services use.
	OwnRoutes bool
	// AllowExternalIPs and AllowLoadBalancers list the ranges in which Services from the API server can have external
	// IPs and load-balancer addresses. Only AllowHostIPs and AllowHostLoadBalancers allow an address of this host, even
	// if a range contains the address (CVE-2020-8554). The restrictions do not apply to Services from manifests.
	AllowExternalIPs, AllowLoadBalancers []netip.Prefix
	AllowHostIPs, AllowHostLoadBalancers bool
	// OwnPorts maps each TCP port on which the daemon listens to the port's configuration key. No Service can use these
	// ports at an address of this host.
	OwnPorts map[uint16]string
	// DenyEndpoints lists the ranges in which no endpoint may be. If the host has no Node object, DenyHostEndpoints
	// forbids endpoints at the host's own addresses in EndpointSlices from the API server. On a Node, pods in the
	// host's network use the host's own addresses.
	DenyEndpoints     []netip.Prefix
	DenyHostEndpoints bool
	// NodePortRange is the only range for NodePorts and health check ports of Services from the API server, and thus
	// protects the ports of this host's programs. The restriction does not apply to Services from manifests.
	NodePortRange PortRange
	// Budget limits the memory that Services use. The zero value sets no limit.
	Budget Budget
	// Checks configures the checks of endpoints.
	Checks Checks
	// LongLived lists Services that use the fast path, in addition to the Services with a traffic hint.
	LongLived map[tracker.Name]bool
	// Held returns the result of Contested when the previous process exited. Only the first call of Plan calls Held. A
	// previous plan takes precedence over Held. Held may be nil.
	Held func() []source.Holding
	// Before, unless nil, is called with the key of each Service before the Planner plans the Service. Tests use Before
	// to cause panics.
	Before func(source.Key)
	// beforeClaims, unless nil, is called with each Service before the Planner collects the Service's claims. Tests use
	// beforeClaims to cause a panic. For one version of a Service, beforeClaims must panic always or never, because the
	// Planner would otherwise remove claims that were never added.
	beforeClaims func(*source.Service)
}

// PodDetection configures how Edgeway distinguishes pods of this host from other sources. In a family without any
// setting, no source counts as a pod: connections to ClusterIPs keep their source address, and Edgeway short-circuits
// no connection.
type PodDetection struct {
	// CIDRs lists the ranges of pod addresses.
	CIDRs []netip.Prefix
	// NodeCIDRs adds the pod ranges of the Node object.
	NodeCIDRs bool
	// Interfaces lists the devices on which packets of pods arrive: "cni0", or "veth*" for a prefix.
	Interfaces []string
}

// NodePortAddresses selects the host's addresses that accept NodePorts.
//
// Unlike in kube-proxy, ranges of one family do not select addresses of the other family, and the zero value selects no
// address. Loopback must be selected explicitly (KEP-6032): a wider range does not include loopback.
type NodePortAddresses struct {
	// Primary selects one address of each family: the first address of NodeAddresses or of the Node object that the
	// host has, or else the source address of the default route. If neither exists, Primary selects no address.
	Primary bool
	// Localhost selects 127.0.0.1 and ::1.
	Localhost bool
	// Prefixes selects addresses by range; 0.0.0.0/0 and ::/0 select all addresses except loopback. A range within
	// 127.0.0.0/8 or ::1/128 has the effect of Localhost in its family.
	Prefixes []netip.Prefix
}
