// Package plan represents Kubernetes Service policy as a decision table: which packets go to which endpoints, are
// rejected or are dropped, and whether their source is masqueraded.
//
// The planner in daemon/planner creates a Plan, and the proxiers translate the Plan. A Plan already contains every
// policy decision (traffic policies, topology, readiness, the short-circuit for pods and the host), so a proxier
// makes no policy decisions. Plan.Decide is the executable specification of a dataplane, and every dataplane test
// compares with it.
//
// A Plan and everything that it points to is immutable. Successive plans share pointers to the parts that did not
// change, which makes Diff cheap.
//
// The command edgeway plan prints a Plan as JSON, and programs may rely on this form.
package plan

import (
	"net/netip"
	"time"
)

// Plan is the complete desired state of the host.
type Plan struct {
	// Generation increases by one with every plan that the planner creates.
	Generation uint64 `json:"generation"`
	// Node describes the host. The pointer is shared with the previous plan if the host did not change.
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
	// PodSources holds the source ranges of pods on this host. PodInterfaces holds the interfaces on which packets of
	// pods arrive ("cni0", or "veth*" for a prefix; see CheckInterface). If both are empty, pods cannot be detected,
	// and no packet is FromPod.
	PodSources    []netip.Prefix `json:"podSources,omitempty"`
	PodInterfaces []string       `json:"podInterfaces,omitempty"`
	// ServiceCIDRs holds the ranges from which ClusterIPs are allocated. Packets to an address in these ranges are
	// dropped unless the address is an active ClusterIP. ServiceCIDRs and PodSources have the form that Minimal
	// returns.
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// Uplinks holds the sources of the host's own connections to Services to which the host has no route: at most one
	// for each family, IPv4 first. If Uplinks is empty, Edgeway maintains no routes to Services.
	Uplinks []Uplink `json:"uplinks,omitempty"`
}

// Uplink is an address of the host and an interface that is up and is not lo. The address may be on another
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
	// Scheduler names the scheduling algorithm that the Service asks for. A backend may not know the name. If
	// Scheduler is empty, the backend uses its own algorithm.
	Scheduler string `json:"scheduler,omitempty"`
	// Frontends is sorted by Frontend.Compare.
	Frontends []Frontend `json:"frontends"`
	// Pools holds the endpoints to choose from, indexed by Pool (cluster, local). Each pool is sorted by address and
	// port and has no duplicates. A pool that no route uses is nil.
	Pools [numPools][]Endpoint `json:"pools"`
	// Serving holds every endpoint that still serves its connections, chosen or not: ready endpoints, and terminating
	// endpoints that still serve. Flows to any other endpoint are stale. Serving is sorted and usually equals a pool.
	Serving []Endpoint `json:"serving,omitempty"`
	// Digest is the SHA-256 of all fields above; see Seal.
	Digest [32]byte `json:"-"`
}

// Endpoint is one backend of a ServicePort.
type Endpoint struct {
	Addr netip.AddrPort `json:"address"`
	// Local reports whether the endpoint runs on this host. A connection of a local endpoint to its own Service may
	// come back to the endpoint and then needs SNAT (hairpin).
	Local bool `json:"local,omitempty"`
	// Weight is the endpoint's relative share of connections, if the backend supports weights. 0 means 1.
	Weight uint16 `json:"weight,omitempty"`
}

// Frontend is an address and port at which clients reach a ServicePort.
type Frontend struct {
	Kind FrontendKind `json:"kind"`
	Port uint16       `json:"port"`
	// Routes holds the routes of new connections, indexed by Origin: from a pod, from this host, from outside.
	Routes [numOrigins]Route `json:"routes"`
	// Addr is invalid for a NodePort, which is reached at all Node.NodePortAddrs.
	Addr netip.Addr `json:"address,omitzero"`
	// AllowFrom lists the sources of the family that may connect (loadBalancerSourceRanges), in the form that Minimal
	// returns. nil allows every source, and an empty slice that is not nil allows none.
	AllowFrom []netip.Prefix `json:"allowFrom,omitzero"`
}

// Route describes what happens to a new connection from one origin.
type Route struct {
	Verdict Verdict `json:"verdict"`
	// Pool and SNAT are only meaningful with Forward. SNAT rewrites the source to the host's own address
	// ("masquerade"). The source of a hairpin connection is rewritten even without SNAT.
	Pool Pool `json:"pool"`
	SNAT bool `json:"snat,omitempty"`
}

// HealthCheck is one healthCheckNodePort of a LoadBalancer Service with externalTrafficPolicy Local.
type HealthCheck struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      uint16 `json:"port"`
	// LocalReady is the number of distinct addresses of ready endpoints on this host, in the family with more such
	// addresses: a pod of a dual-stack Service has an address in each family.
	LocalReady int `json:"localEndpoints"`
}
