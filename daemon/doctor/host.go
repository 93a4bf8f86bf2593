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

// Host is the state that the checks inspect. A function is nil if this host lacks the facility that the function
// queries.
type Host struct {
	Config *config.Config
	Facts
	System
	// Unasked is the reason why a daemon that may be running did not respond. Unasked is the zero Fault if the daemon
	// responded or no daemon is running.
	Unasked fault.Fault
	// Unprivileged reports whether this process lacks some of the privileges that the checks need.
	Unprivileged bool
	// Backend is the configured backend on this host. BackendErr is the reason why the backend could not be
	// determined.
	Backend    proxiers.Component
	BackendErr error
	// Serving is the backend that programs the kernel, or that a daemon would use: Backend or its fallback.
	Serving proxiers.Component
	// Contact queries the API server in the same way as the daemon.
	Contact func(context.Context) (kube.Contact, error)
	// Rules checks the rules of other programs. Rules must not be called concurrently.
	Rules func(context.Context, firewall.Question) []fault.Fault
	// Lookups limits the number of endpoints and Service addresses whose routes are looked up.
	Lookups int
	// filteredBefore is the number of packets that the reverse path filter had dropped a few minutes ago, or 0.
	filteredBefore int
}

// Facts holds the state that a daemon reports or, if no daemon runs, the state of the daemon's sources.
type Facts struct {
	PID int `json:"pid,omitempty"` // PID is 0 if no daemon runs
	// Plan is the plan in the kernel, or else the next plan, or nil before the first plan.
	Plan    *plan.Plan `json:"plan,omitempty"`
	InForce bool       `json:"inForce,omitempty"`
	// NodeObject reports whether the cluster has a Node object for this host.
	NodeObject bool `json:"nodeObject,omitempty"`
	// Faults holds the faults that the daemon reports or, if no daemon runs, the faults of the sources.
	Faults []fault.Fault `json:"faults,omitempty"`
}

// System is the kernel that the checks inspect.
type System interface {
	// Read returns the content of a file without surrounding white space.
	Read(path string) (string, error)
	// NextHop returns the route of packets that this host sends to an address. The error wraps the kernel's error. The
	// kernel returns ENETUNREACH if there is no route, and EHOSTUNREACH, EINVAL or EACCES for routes of the types
	// unreachable, blackhole and prohibit.
	NextHop(to netip.Addr) (nodeinfo.NextHop, error)
	// Links returns the names of all interfaces that are up, except the loopback interface.
	Links() ([]string, error)
	// Advertised returns the interfaces of the IPv6 default routes that router advertisements added.
	Advertised() ([]string, error)
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

// held reports whether the host owns an address.
func (h *Host) held(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(h.node().HostAddrs, a, netip.Addr.Compare)
	return found
}

// remote reports whether a route leads to an endpoint that is not on this host.
func (h *Host) remote(svc *plan.ServicePort, r plan.Route) bool {
	return r.Verdict == plan.Forward &&
		slices.ContainsFunc(svc.Pools[r.Pool], func(e plan.Endpoint) bool { return !h.held(e.Addr.Addr()) })
}
