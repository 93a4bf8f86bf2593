package planner

import (
	"net/netip"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// Options are the operator's decisions. They do not change in the life of a Planner: a reload makes a new one and
// passes the plan of the old one to it.
type Options struct {
	// Families are the ones to serve. Empty: those that the host has an address of, loopback included.
	Families []plan.Family
	// NodeName is the name that endpoints on this host carry. Empty: that of the Node object.
	NodeName string
	// NodeAddresses are the host's own addresses. A family without one has those of the Node object,
	// else the source of its default route.
	NodeAddresses []netip.Addr
	// Zone is compared with topology hints. Empty: that of the Node object.
	Zone string
	// LocalAsCluster says what a Local traffic policy does on a host without a Node object, for
	// a ServicePort that has no endpoint here: the same as Cluster. Otherwise it drops.
	LocalAsCluster bool
	// MasqueradeAll rewrites the source of every connection to a ClusterIP.
	MasqueradeAll bool
	// Pods says how pods of this host are told from other sources.
	Pods PodDetection
	// NodePorts says which addresses accept NodePorts.
	NodePorts NodePortAddresses
	// ServiceCIDRs are added to those of the ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix
	// OwnRoutes says that the plan is to have uplinks, for routes to Services.
	OwnRoutes bool
	// AllowExternalIPs and AllowLoadBalancers are the only ranges that the external IPs and the load-balancer
	// addresses of Services from the API server may come from. An address of this host needs AllowHostIPs or
	// AllowHostLoadBalancers, whatever the ranges say (CVE-2020-8554). Services from manifests are exempt.
	AllowExternalIPs, AllowLoadBalancers []netip.Prefix
	AllowHostIPs, AllowHostLoadBalancers bool
	// OwnPorts maps the TCP ports that the daemon listens on to their keys in the configuration. No Service takes
	// them from an address of this host.
	OwnPorts map[uint16]string
	// DenyEndpoints are the ranges that no endpoint may be in. DenyHostEndpoints leaves out the host's own addresses
	// in EndpointSlices that are no manifests, while the host has no Node object: on a Node they are those of pods in
	// the host's network.
	DenyEndpoints     []netip.Prefix
	DenyHostEndpoints bool
	// NodePortRange is the only range that the NodePorts and health check ports of Services from the API server may
	// come from: it keeps them from the ports of this host's programs. Services from manifests are exempt.
	NodePortRange PortRange
	// Budget bounds the memory that Services take. Its zero value bounds nothing.
	Budget Budget
	// Checks are those of endpoints.
	Checks Checks
	// LongLived are Services that take the fast path, beside those that say so themselves.
	LongLived map[tracker.Name]bool
	// Held returns what Contested returned when the last process ended. The first plan asks it; a previous plan, if
	// there is one, has precedence. It may be nil.
	Held func() []source.Holding
	// Before is called with the key of each Service before it is planned. Tests make it panic. It may be nil.
	Before func(source.Key)
	// beforeClaims is called with each Service before its claims are collected. Tests make it panic, always or never
	// for one version of a Service: otherwise the claims that are removed are not those that were added.
	beforeClaims func(*source.Service)
}

// PodDetection says how pods of this host are told from other sources. In a family that none of it
// covers no source is a pod: ClusterIP traffic keeps its source, and nothing is short-circuited.
type PodDetection struct {
	// CIDRs are the ranges that pods get their addresses from.
	CIDRs []netip.Prefix
	// NodeCIDRs adds the pod ranges of the Node object.
	NodeCIDRs bool
	// Interfaces are those that packets of pods come in by: "cni0", or "veth*" for a prefix.
	Interfaces []string
}

// NodePortAddresses says which of the host's addresses accept NodePorts.
//
// Only what is listed accepts: unlike kube-proxy, a list that has ranges of one family alone leaves
// the other family without NodePorts, and the zero value accepts none. Loopback must be asked for
// by name (KEP-6032): no range that is wider than it includes it.
type NodePortAddresses struct {
	// Primary is one address of each family: the first of NodeAddresses or of the Node object that is
	// on the host, else the source of the default route. None when that cannot be told.
	Primary bool
	// Localhost is 127.0.0.1 and ::1.
	Localhost bool
	// Prefixes select by range; 0.0.0.0/0 and ::/0 stand for all addresses but loopback. A range within
	// 127.0.0.0/8 or ::1/128 stands for Localhost in its family.
	Prefixes []netip.Prefix
}
