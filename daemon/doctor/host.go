package doctor

import (
	"context"
	"net/netip"
	"slices"

	"edgeway/daemon/config"
	"edgeway/daemon/doctor/firewall"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source/kube"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Host holds the state that the checks inspect. A function field is nil if this host lacks the facility that the
// function queries.
type Host struct {
	Config *config.Config
	Facts
	System
	// DaemonFault explains why a daemon that may be running did not respond. DaemonFault is the zero Fault if the
	// daemon responded or no daemon is running.
	DaemonFault fault.Fault
	// Unprivileged reports whether this process lacks some of the privileges that the checks need.
	Unprivileged bool
	// Backend is the configured backend on this host. BackendErr explains why Edgeway could not determine the
	// configured backend.
	Backend    proxiers.Component
	BackendErr error
	// ActiveBackend is the backend that a daemon on this host uses: either Backend or its fallback.
	ActiveBackend proxiers.Component
	// Contact queries the API server as the daemon does.
	Contact func(context.Context) (kube.Contact, error)
	// Rules inspects other programs' firewall rules. Rules is not safe for concurrent use.
	Rules func(context.Context, firewall.Requirements) []fault.Fault
	// MaxLookups is the maximum number of routes to endpoints and Service addresses that the checks look up.
	MaxLookups int
	// previousDrops is the reverse path filter's drop count from a few minutes ago, or 0 if that count is unknown.
	previousDrops int
}

// Facts holds the state that a daemon reports or, if no daemon is running, the state that the sources describe.
type Facts struct {
	PID int `json:"pid,omitempty"` // PID is 0 if no daemon is running
	// Plan is the plan in force or, if no plan is in force, the next plan. Plan is nil if there is no plan yet.
	Plan    *plan.Plan `json:"plan,omitempty"`
	InForce bool       `json:"inForce,omitempty"`
	// NodeObject reports whether the cluster has a Node object for this host.
	NodeObject bool `json:"nodeObject,omitempty"`
	// Faults holds the faults that the daemon reports or, if no daemon is running, the faults of the sources.
	Faults []fault.Fault `json:"faults,omitempty"`
}

// System provides the kernel state that the checks inspect.
type System interface {
	// Read returns the content of a file without surrounding white space.
	Read(path string) (string, error)
	// NextHop returns the next hop of packets from this host to an address, according to the kernel's routing tables.
	// The returned error wraps the kernel's error. The kernel returns ENETUNREACH if there is no route, EHOSTUNREACH
	// for an unreachable route, EINVAL for a blackhole route, and EACCES for a prohibit route.
	NextHop(to netip.Addr) (nodeinfo.NextHop, error)
	// Links returns the names of all interfaces that are up, except the loopback interface.
	Links() ([]string, error)
	// AdvertisedLinks returns the interfaces of the IPv6 default routes that router advertisements added.
	AdvertisedLinks() ([]string, error)
}

func (h *Host) node() *plan.Node {
	if h.Plan == nil || h.Plan.Node == nil {
		return &plan.Node{}
	}
	return h.Plan.Node
}

func (h *Host) servicePorts() []*plan.ServicePort {
	if h.Plan == nil {
		return nil
	}
	return h.Plan.Services
}

// owns reports whether the host owns an address.
func (h *Host) owns(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(h.node().HostAddrs, a, netip.Addr.Compare)
	return found
}

// isRemote reports whether a plan.Route leads to an endpoint on another host.
func (h *Host) isRemote(svc *plan.ServicePort, r plan.Route) bool {
	return r.Verdict == plan.Forward &&
		slices.ContainsFunc(svc.Pools[r.Pool], func(e plan.Endpoint) bool { return !h.owns(e.Addr.Addr()) })
}
