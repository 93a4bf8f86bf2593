// Package plan represents Kubernetes Service policy as a decision table. The table determines which packets are
// forwarded to which endpoints, rejected or dropped, and which sources are masqueraded.
//
// The planner in daemon/planner creates a Plan, and the proxiers apply the Plan to the kernel. A Plan already
// contains every policy decision (traffic policies, topology, readiness, the short-circuit for pods and the host), so
// a proxier makes no policy decisions. Plan.Decide is the executable specification of a dataplane, against which
// every dataplane test compares.
//
// A Plan and all values to which it points are immutable. Successive plans share pointers to unchanged values, so
// Diff is cheap.
//
// The edgeway plan command prints a Plan as JSON, and programs may rely on this format.
package plan

import (
	"net/netip"
	"time"
)

// Plan is the complete desired state of the host.
type Plan struct {
	// Generation increases by one with every plan that the planner creates.
	Generation uint64 `json:"generation"`
	// Node describes the host. Successive plans share the pointer if the host did not change.
	Node *Node `json:"node"`
	// Services is sorted by ServicePort.Compare and holds at most one entry for each (Name, Family).
	Services []*ServicePort `json:"services"`
	// HealthChecks is sorted by namespace, then name.
	HealthChecks []*HealthCheck `json:"healthChecks,omitempty"`
}

// Node describes the host as the dataplane sees it. All slices are sorted and have no duplicates.
type Node struct {
	// Name is the Node name of the host. Endpoints with this node name are local.
	Name string `json:"name"`
	// HostAddrs holds all addresses of the host's interfaces, of both families and including loopback.
	HostAddrs []netip.Addr `json:"addresses,omitempty"`
	// NodePortAddrs holds the addresses that accept NodePorts, without loopback addresses.
	NodePortAddrs []netip.Addr `json:"nodePortAddresses,omitempty"`
	// LoopbackAddrs holds the loopback addresses that accept NodePorts, at most 127.0.0.1 and ::1. On these addresses
	// TCP is relayed in user space (proxiers/localnodeport, KEP-6032), and the other protocols are rejected.
	LoopbackAddrs []netip.Addr `json:"loopbackAddresses,omitempty"`
	// PodSources holds the source ranges of pods on this host. PodInterfaces holds the interfaces on which packets
	// from pods arrive ("cni0", or "veth*" for a prefix; see CheckInterface). If both fields are empty, Edgeway
	// cannot detect pods, and no packet is FromPod.
	PodSources    []netip.Prefix `json:"podSources,omitempty"`
	PodInterfaces []string       `json:"podInterfaces,omitempty"`
	// ServiceCIDRs holds the ranges from which ClusterIPs are allocated. Packets to an address in these ranges are
	// dropped unless the address is an active ClusterIP. ServiceCIDRs and PodSources have the form that Minimal
	// returns.
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// Uplinks holds at most one source for each family, IPv4 first. The host's own connections use these sources to
	// reach Services to which the host has no route. If Uplinks is empty, Edgeway maintains no routes to Services.
	Uplinks []Uplink `json:"uplinks,omitempty"`
}

// Uplink is an address of the host and an interface, other than lo, that is up. The address may be on another
// interface.
type Uplink struct {
	Addr      netip.Addr `json:"address"`
	Interface string     `json:"interface"`
}

// ServicePort is one port of one Service in one address family.
type ServicePort struct {
	Name   ServicePortName `json:"name"`
	Family Family          `json:"family"`
	// Affinity is the time for which a client keeps its endpoint after its last new connection. 0 means no affinity.
	Affinity time.Duration `json:"affinityNanoseconds,omitempty"`
	// LongLived reports whether the Service opted in to the flowtable fast path (KEP-4963).
	LongLived bool `json:"longLived,omitempty"`
	// Scheduler names the scheduling algorithm that the Service requests. A backend may not support the algorithm. If
	// Scheduler is empty, the backend uses its own algorithm.
	Scheduler string `json:"scheduler,omitempty"`
	// Frontends is sorted by Frontend.Compare.
	Frontends []Frontend `json:"frontends"`
	// Pools holds the endpoints to choose from, indexed by Pool (cluster, local). Each pool is sorted by address and
	// port and has no duplicates. A pool that no route uses is nil.
	Pools [numPools][]Endpoint `json:"pools"`
	// Serving holds every endpoint that still serves connections, even if no pool contains the endpoint: ready
	// endpoints, and terminating endpoints that still serve. Flows to any other endpoint are stale. Serving is sorted
	// and usually equals a pool.
	Serving []Endpoint `json:"serving,omitempty"`
	// Digest is the SHA-256 hash of all fields above; see Seal.
	Digest [32]byte `json:"-"`
}

// Endpoint is an address and port to which a ServicePort forwards connections.
type Endpoint struct {
	Addr netip.AddrPort `json:"address"`
	// Local reports whether the endpoint runs on this host. A connection from a local endpoint to its own Service may
	// return to the endpoint and then needs SNAT (hairpin).
	Local bool `json:"local,omitempty"`
	// Weight is the endpoint's relative share of connections, if the backend supports weights. A Weight of 0 means 1.
	Weight uint16 `json:"weight,omitempty"`
}

// Frontend is an address and port at which clients reach a ServicePort.
type Frontend struct {
	Kind FrontendKind `json:"kind"`
	Port uint16       `json:"port"`
	// Routes holds the routes of new connections, indexed by Origin: from a pod, from this host, from outside.
	Routes [numOrigins]Route `json:"routes"`
	// Addr is invalid for a NodePort, which accepts connections at all Node.NodePortAddrs.
	Addr netip.Addr `json:"address,omitzero"`
	// AllowFrom lists the source ranges that may connect (loadBalancerSourceRanges), in the form that Minimal
	// returns. A nil AllowFrom allows every source, and an AllowFrom that is empty but not nil allows no source.
	AllowFrom []netip.Prefix `json:"allowFrom,omitzero"`
}

// Route describes what happens to a new connection from one origin.
type Route struct {
	Verdict Verdict `json:"verdict"`
	// Pool and SNAT are meaningful only if the verdict is Forward. SNAT rewrites the source to the host's own address
	// ("masquerade"). The source of a hairpin connection is rewritten even without SNAT.
	Pool Pool `json:"pool"`
	SNAT bool `json:"snat,omitempty"`
}

// HealthCheck is one healthCheckNodePort of a LoadBalancer Service with externalTrafficPolicy Local.
type HealthCheck struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      uint16 `json:"port"`
	// LocalReady is the number of distinct addresses of ready endpoints on this host. The family with more addresses
	// counts, because a pod of a dual-stack Service has an address in each family.
	LocalReady int `json:"localEndpoints"`
}
