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

// Host is what the checks look at. What a nil function would tell does not exist here.
type Host struct {
	Config *config.Config
	Facts
	System
	// Unasked says why a daemon that runs, or may run, was not asked; zero: it was, or none runs.
	Unasked fault.Fault
	// Unprivileged says that this process may not look at everything.
	Unprivileged bool
	// Backend is the configured one, as it is on this host; BackendErr says why it cannot be told.
	Backend    proxiers.Component
	BackendErr error
	// Serving is the backend that serves, or would: Backend, or the one that stands in for it.
	Serving proxiers.Component
	// Contact asks the API server as the daemon does.
	Contact func(context.Context) (kube.Contact, error)
	// Rules asks the rules of other programs, never twice at once.
	Rules func(context.Context, firewall.Question) []fault.Fault
	// Lookups bounds the endpoints, and the addresses of Services, whose route is looked up.
	Lookups int
	// filteredBefore is the number of packets that the reverse path filter had dropped some minutes ago, or 0.
	filteredBefore int
}

// Facts are what a daemon knows; without one, what its sources say.
type Facts struct {
	PID int `json:"pid,omitempty"` // 0: no daemon runs
	// Plan is the one in the kernel, or else the one to come; nil: there is none.
	Plan    *plan.Plan `json:"plan,omitempty"`
	InForce bool       `json:"inForce,omitempty"`
	// NodeObject says that the cluster has a Node for this host, which endpoints may be on.
	NodeObject bool `json:"nodeObject,omitempty"`
	// Faults are those that the daemon reports, or else those of the sources.
	Faults []fault.Fault `json:"faults,omitempty"`
}

// System is the kernel that is looked at.
type System interface {
	// Read gives the content of a file without the white space around it.
	Read(path string) (string, error)
	// Way looks up the way of packets that this host sends to an address. The error wraps the kernel's: ENETUNREACH
	// without a route; EHOSTUNREACH, EINVAL or EACCES for routes of the types unreachable, blackhole and prohibit.
	Way(to netip.Addr) (nodeinfo.Way, error)
	// Links are the names of the interfaces that are up, but for the loopback interface.
	Links() ([]string, error)
	// Advertised are the interfaces by which the kernel has a default route of IPv6 from a router's advertisement.
	Advertised() ([]string, error)
}

// node is the plan's; empty without a plan.
func (h *Host) node() *plan.Node {
	if h.Plan == nil || h.Plan.Node == nil {
		return &plan.Node{}
	}
	return h.Plan.Node
}

// servicePorts are the plan's.
func (h *Host) servicePorts() []*plan.ServicePort {
	if h.Plan == nil {
		return nil
	}
	return h.Plan.Services
}

// held reports whether a is an address of the host.
func (h *Host) held(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(h.node().HostAddrs, a, netip.Addr.Compare)
	return found
}

// remote reports whether a route leads to an endpoint that is not on this host.
func (h *Host) remote(svc *plan.ServicePort, r plan.Route) bool {
	return r.Verdict == plan.Forward &&
		slices.ContainsFunc(svc.Pools[r.Pool], func(e plan.Endpoint) bool { return !h.held(e.Addr.Addr()) })
}
