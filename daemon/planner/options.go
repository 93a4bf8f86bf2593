package planner

import (
	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Options configures a Planner. A Planner's options never change. A reload creates a new Planner, which receives the
// old Planner's plan.
type Options struct {
	// Node, Proxy and FastPath are configuration sections. The configuration schema documents their keys.
	Node     config.Node
	Proxy    config.Proxy
	FastPath config.FastPath
	// Families lists the address families to serve. If Families is empty, Edgeway serves the families of all addresses
	// of the host, including its loopback addresses. The Planner ignores Proxy.IPFamilies.
	Families []plan.Family
	// OwnRoutes reports whether the plan contains uplinks, which Edgeway needs for its own routes to Services.
	OwnRoutes bool
	// OwnPorts maps each TCP port that the daemon listens on to the configuration key that sets the port. No Service
	// can use any of the daemon's ports at an address of this host.
	OwnPorts map[uint16]string
	// Budget limits the amount of memory that Services use. The zero value sets no limit.
	Budget Budget
	// Checks configures the endpoint checks.
	Checks Checks
	// SavedOwners returns the result of the previous process's last call to ContestedPorts. Only the first call to Plan
	// calls SavedOwners. The owners in a previous plan take precedence over the saved owners. SavedOwners may be nil.
	SavedOwners func() []source.Holding
	// BeforeService, if not nil, receives the key of each Service that the Planner is about to plan. Tests use
	// BeforeService to cause panics.
	BeforeService func(source.Key)
	// beforeRequests, if not nil, receives each Service before the Planner collects the Service's requests for ports.
	// Tests use beforeRequests to cause a panic. For a given version of a Service, beforeRequests must either always
	// panic or never panic. Otherwise, the Planner would remove requests that it never added.
	beforeRequests func(*source.Service)
}
