// Package plan represents Kubernetes Service policy as a decision table. The table specifies which connections the host
// forwards, rejects, drops or masquerades, and which endpoints a connection may reach.
//
// The planner in daemon/planner creates a Plan, and the proxiers apply the Plan to the kernel. A Plan already reflects
// every policy decision: traffic policies, topology, readiness, and the short-circuit for connections from pods and the
// host. A proxier therefore makes no policy decisions. Plan.Decide is the executable specification for all dataplanes.
// Every dataplane test compares the dataplane's results with those of Plan.Decide.
//
// A Plan and all values reachable from it are immutable. Successive plans share pointers to unchanged values, so Diff
// is cheap.
//
// The edgeway plan command prints a Plan as JSON. Programs may rely on the JSON format of a Plan.
package plan

import (
	"net/netip"
	"time"
)

// Plan is the complete desired state of the host.
type Plan struct {
	// The planner increments Generation for every plan.
	Generation uint64 `json:"generation"`
	// Successive plans share one Node as long as it does not change.
	Node *Node `json:"node"`
	// Services is sorted by ServicePort.Compare. Each (Name, Family) pair is unique.
	Services []*ServicePort `json:"services"`
	// HealthChecks is sorted by namespace, then name.
	HealthChecks []*HealthCheck `json:"healthChecks,omitempty"`
}

// Node holds the facts that the dataplane needs about the host. All slices are sorted and contain no duplicates.
type Node struct {
	// Name is the host's Kubernetes node name. Endpoints on this node are local.
	Name string `json:"name"`
	// HostAddrs holds the addresses of all network interfaces, including loopback.
	HostAddrs []netip.Addr `json:"addresses,omitempty"`
	// NodePortAddrs holds the non-loopback addresses on which Edgeway serves NodePorts.
	NodePortAddrs []netip.Addr `json:"nodePortAddresses,omitempty"`
	// LoopbackAddrs holds the loopback addresses on which Edgeway serves NodePorts: 127.0.0.1, ::1, both or neither.
	// Edgeway relays TCP connections to LoopbackAddrs in user space (proxiers/localnodeport, KEP-6032) and rejects
	// other protocols.
	LoopbackAddrs []netip.Addr `json:"loopbackAddresses,omitempty"`
	// PodSources holds the address ranges of the pods on this host. PodInterfaces holds the interfaces that receive
	// packets from pods. Each entry is a name such as "cni0" or a prefix such as "veth*" (see ValidateInterface). If
	// PodSources and PodInterfaces are both empty, Edgeway cannot identify pods, and no packet has the origin FromPod.
	PodSources    []netip.Prefix `json:"podSources,omitempty"`
	PodInterfaces []string       `json:"podInterfaces,omitempty"`
	// ServiceCIDRs holds the ranges from which the API server allocates ClusterIPs. Edgeway drops packets to an address
	// in ServiceCIDRs unless the address is a ClusterIP or an address of the host. ServiceCIDRs and PodSources are
	// normalized (see NormalizePrefixes).
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// Uplinks holds at most one uplink for each family, IPv4 first. If the host has no route to a Service, Edgeway adds
	// a route through the family's uplink, with the uplink's source address. If Uplinks is empty, Edgeway adds no
	// routes for Services.
	Uplinks []Uplink `json:"uplinks,omitempty"`
}

// Uplink holds the interface and source address of Edgeway's routes for one family. The interface is up and is not lo.
// The address may belong to another interface.
type Uplink struct {
	Addr      netip.Addr `json:"address"`
	Interface string     `json:"interface"`
}

// ServicePort is a Service port in one address family.
type ServicePort struct {
	Name   ServicePortName `json:"name"`
	Family Family          `json:"family"`
	// Affinity is the session affinity timeout, or 0 for no affinity. Each new connection from a client restarts the
	// timeout.
	Affinity time.Duration `json:"affinityNanoseconds,omitempty"`
	// LongLived reports whether the Service opted in to the flowtable fast path (KEP-4963).
	LongLived bool `json:"longLived,omitempty"`
	// Scheduler is the name of the scheduling algorithm that the Service requests, or "" for the backend's default. Not
	// every backend supports every algorithm.
	Scheduler string `json:"scheduler,omitempty"`
	// Frontends is sorted by Frontend.Compare.
	Frontends []Frontend `json:"frontends"`
	// Pools holds the endpoints for new connections, indexed by Pool (cluster, local). Each pool is sorted by address
	// and port and has no duplicates. A pool that no Route uses is nil.
	Pools [numPools][]Endpoint `json:"pools"`
	// Serving holds the endpoints that are ready, or terminating but still serving, even if no pool contains them. A
	// flow to an endpoint that is not in Serving is stale. Serving is sorted and usually equals one of the pools.
	Serving []Endpoint `json:"serving,omitempty"`
	// Digest is the SHA-256 hash that Seal computes from all fields above.
	Digest [32]byte `json:"-"`
}

// Endpoint is an address and port that a ServicePort forwards connections to.
type Endpoint struct {
	Addr netip.AddrPort `json:"address"`
	// Local reports whether the endpoint runs on this host. A connection from a local endpoint to its own Service may
	// return to the same endpoint (a hairpin). A hairpin connection needs SNAT.
	Local bool `json:"local,omitempty"`
	// Weight is the endpoint's relative share of connections, if the backend supports weights. A Weight of 0 means 1.
	Weight uint16 `json:"weight,omitempty"`
}

// Route specifies how Edgeway handles new connections from one origin.
type Route struct {
	Verdict Verdict `json:"verdict"`
	// Pool and SNAT are meaningful only if the verdict is Forward. SNAT reports whether the backend rewrites the source
	// address to the host's own address ("masquerade"). Edgeway masquerades hairpin connections even if SNAT is false.
	Pool Pool `json:"pool"`
	SNAT bool `json:"snat,omitempty"`
}

// HealthCheck describes the healthCheckNodePort of a LoadBalancer Service whose externalTrafficPolicy is Local.
type HealthCheck struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      uint16 `json:"port"`
	// LocalReady is the number of distinct addresses of ready endpoints on this host in one address family. For a
	// dual-stack Service, LocalReady is the larger of the two families' counts, because each pod has an address in both
	// families.
	LocalReady int `json:"localEndpoints"`
}
