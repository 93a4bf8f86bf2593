// Package plan is Kubernetes Service policy resolved to a decision table: which packet goes to which
// endpoints, is rejected or is dropped, and whether its source is masqueraded.
//
// A Plan is made by daemon/planner and translated by the proxiers. Every choice of policy (traffic
// policies, topology, readiness, the short-circuit for pods and the host) is already in it, so that
// a proxier translates and decides nothing. Plan.Decide is the executable specification of what
// a dataplane must do, and the oracle of every dataplane test.
//
// A Plan and all it points to is immutable once made. Pointers are shared with the previous plan
// where nothing changed, which is what makes Diff cheap.
//
// The JSON of a Plan is what edgeway plan prints: a program may rely on it.
package plan

import (
	"net/netip"
	"time"
)

// Plan is the whole desired state of the host.
type Plan struct {
	// Generation rises by one with every plan that the planner makes.
	Generation uint64 `json:"generation"`
	// Node is what the plan needs to know about the host itself. The pointer is shared with the
	// previous plan when nothing in it changed.
	Node *Node `json:"node"`
	// Services is sorted by ServicePort.Compare and holds at most one entry for each (Name, Family).
	Services []*ServicePort `json:"services"`
	// HealthChecks is sorted by namespace, then name.
	HealthChecks []*HealthCheck `json:"healthChecks,omitempty"`
}

// Node is the host as the dataplane sees it. All slices are sorted and free of duplicates.
type Node struct {
	// Name is the Node name of the host: endpoints with this node name are local.
	Name string `json:"name"`
	// HostAddrs are all addresses of the host's interfaces, both families, loopback included.
	HostAddrs []netip.Addr `json:"addresses,omitempty"`
	// NodePortAddrs are the addresses that accept NodePorts. Never loopback.
	NodePortAddrs []netip.Addr `json:"nodePortAddresses,omitempty"`
	// LoopbackAddrs are the loopback addresses that accept NodePorts, at most 127.0.0.1 and ::1: TCP is
	// relayed in user space (proxiers/localnodeport, KEP-6032), the other protocols are rejected.
	LoopbackAddrs []netip.Addr `json:"loopbackAddresses,omitempty"`
	// PodSources are the source ranges of pods on this host; PodInterfaces are the interfaces that their packets come
	// in by ("cni0", or "veth*" for a prefix, see CheckInterface). Both empty: pods cannot be detected, and no packet
	// is FromPod.
	PodSources    []netip.Prefix `json:"podSources,omitempty"`
	PodInterfaces []string       `json:"podInterfaces,omitempty"`
	// ServiceCIDRs, as PodSources, are as Minimal gives them: the ranges that ClusterIPs are allocated from. An address
	// in them that is no active ClusterIP is dropped.
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// Uplinks are where the host's own connections to Services begin if no route of the host leads there, IPv4 first
	// and at most one of each family. Empty: no routes to Services are kept.
	Uplinks []Uplink `json:"uplinks,omitempty"`
}

// Uplink is an address of the host, and an interface that is up and not lo. The address may be on another one.
type Uplink struct {
	Addr      netip.Addr `json:"address"`
	Interface string     `json:"interface"`
}

// ServicePort is one port of one Service in one address family.
type ServicePort struct {
	Name   ServicePortName `json:"name"`
	Family Family          `json:"family"`
	// Affinity is how long a client address keeps its endpoint after its last new connection; 0: no affinity.
	Affinity time.Duration `json:"affinityNanoseconds,omitempty"`
	// LongLived says that the Service opted in to the flowtable fast path (KEP-4963).
	LongLived bool `json:"longLived,omitempty"`
	// Scheduler is how the Service asks endpoints to be chosen, by a name that a backend may know; empty: as the
	// backend does.
	Scheduler string `json:"scheduler,omitempty"`
	// Frontends is sorted by Frontend.Compare.
	Frontends []Frontend `json:"frontends"`
	// Pools holds the endpoints to choose from, indexed by Pool (cluster, local), sorted by address and port, without
	// duplicates. A pool that no route uses is nil.
	Pools [numPools][]Endpoint `json:"pools"`
	// Serving is every endpoint, chosen or not, that still serves its connections: ready ones, and
	// terminating ones that still serve. Flows to any other endpoint are stale. Sorted, and mostly a pool itself.
	Serving []Endpoint `json:"serving,omitempty"`
	// Digest is the SHA-256 of every field above; see Seal.
	Digest [32]byte `json:"-"`
}

// Endpoint is one backend of a ServicePort.
type Endpoint struct {
	Addr netip.AddrPort `json:"address"`
	// Local says that the endpoint runs on this host, so its connections to its own Service come
	// back to itself and need SNAT (hairpin).
	Local bool `json:"local,omitempty"`
	// Weight says how many connections it shall have beside others, where a backend can do that; 0: as one of weight 1.
	Weight uint16 `json:"weight,omitempty"`
}

// Frontend is one address and port by which a ServicePort is reached.
type Frontend struct {
	Kind FrontendKind `json:"kind"`
	Port uint16       `json:"port"`
	// Routes says what happens to a new connection, indexed by Origin: from a pod, from this host, from outside.
	Routes [numOrigins]Route `json:"routes"`
	// Addr is invalid for NodePort, which is reached at each of Node.NodePortAddrs.
	Addr netip.Addr `json:"address,omitzero"`
	// AllowFrom lists the sources of the family that may connect (loadBalancerSourceRanges), as Minimal gives
	// them. nil: anywhere.
	// Empty but not nil: nowhere.
	AllowFrom []netip.Prefix `json:"allowFrom,omitzero"`
}

// Route is what happens to a new connection of one origin.
type Route struct {
	Verdict Verdict `json:"verdict"`
	// Pool and SNAT have a meaning only with Forward. SNAT rewrites the source to the host's own
	// address ("masquerade"); a hairpin connection is rewritten without it.
	Pool Pool `json:"pool"`
	SNAT bool `json:"snat,omitempty"`
}

// HealthCheck is one healthCheckNodePort of a LoadBalancer Service with externalTrafficPolicy Local.
type HealthCheck struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      uint16 `json:"port"`
	// LocalReady is the number of distinct addresses of ready endpoints on this host, of the family that
	// has more of them: a pod of a dual-stack Service has one in each.
	LocalReady int `json:"localEndpoints"`
}
