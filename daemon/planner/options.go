package planner

import (
	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Options holds the operator's decisions. The options of a Planner never change: a reload creates a new Planner, which
// receives the plan of the old Planner.
type Options struct {
	// Node, Proxy and FastPath are sections of the configuration, whose schema documents the keys.
	Node     config.Node
	Proxy    config.Proxy
	FastPath config.FastPath
	// Families lists the families to serve. If Families is empty, Edgeway serves the families of the host's
	// addresses, including loopback addresses. The Planner ignores Proxy.IPFamilies.
	Families []plan.Family
	// OwnRoutes adds uplinks to the plan, which Edgeway's own routes to Services use.
	OwnRoutes bool
	// OwnPorts maps each TCP port on which the daemon listens to the port's configuration key. No Service can use these
	// ports at an address of this host.
	OwnPorts map[uint16]string
	// Budget limits the memory that Services use. The zero value sets no limit.
	Budget Budget
	// Checks configures the checks of endpoints.
	Checks Checks
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
