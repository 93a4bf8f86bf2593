package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/text"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// checks are the checks of endpoints that a configuration asks for. Without any, the methods do nothing.
type checks struct {
	endpoints *endpointcheck.Checker
	of        planner.Checks
	services  deadServices
}

// useChecks configures the Checker, which outlives the instances.
func useChecks(cfg *config.Config, endpoints *endpointcheck.Checker) *checks {
	tcp := cfg.Checks.TCP
	if len(tcp.Sources) == 0 {
		endpoints.Forget()
		return &checks{endpoints: endpoints}
	}
	endpoints.Use(endpointcheck.Settings{
		Interval: tcp.Interval, Failures: tcp.Failures, Mark: proxiers.OwnMark(cfg.Proxy.MasqueradeBit),
	})
	return &checks{endpoints: endpoints, of: planner.Checks{
		Manifests: slices.Contains(tcp.Sources, config.CheckedFile),
		API:       slices.Contains(tcp.Sources, config.CheckedKube),
		Dead:      endpoints.Dead,
	}}
}

func (c *checks) on() bool { return c.of.Dead != nil }

// run checks the endpoints.
func (c *checks) run(start starter) {
	if c.on() {
		start("endpoint checks", c.endpoints.Run)
	}
}

// follow passes the endpoints of the newest plan to the Checker.
func (c *checks) follow(p *planner.Planner) {
	if c.on() {
		c.endpoints.Follow(p.Checked())
	}
}

// conditions returns one condition while endpoints are dead, which names the one that has been dead for longest, and
// one while a port of a Service has no other endpoints. Clients of other hosts ask for them.
func (c *checks) conditions(p *plan.Plan) []fault.Fault {
	dead := c.endpoints.Dead()
	if dead.Len() == 0 {
		return nil
	}
	var first netip.AddrPort
	for at, f := range dead.Faults {
		if before := dead.Faults[first]; !first.IsValid() ||
			cmp.Or(f.Since.Compare(before.Since), at.Compare(first)) < 0 {
			first = at
		}
	}
	longest := dead.Faults[first]
	text := fmt.Sprintf("%d of %s without an answer, %s for one (%s): they get no connections while another one of their Service answers",
		dead.Len(), text.Count(c.endpoints.Endpoints(), "checked endpoint"), first, longest.Err)
	return append(c.services.faults(p, dead),
		fault.Fault{ID: "endpoint-checks", Severity: fault.Warning, Since: longest.Since, Message: text})
}

// status returns the part of edgeway status, or nil if no endpoint is checked.
func (c *checks) status() *control.StatusChecks {
	if !c.on() {
		return nil
	}
	return control.NewStatusChecks(c.endpoints.Endpoints(), c.endpoints.Dead())
}

// out returns the dead endpoints of a ServicePort, which get no connections.
func (c *checks) out(state pipeline.State, sp *plan.ServicePort) []string {
	if !c.on() || state.Snapshot == nil {
		return nil
	}
	svc := state.Snapshot.Find(tracker.Name{Namespace: sp.Name.Namespace, Name: sp.Name.Name})
	if svc == nil {
		return nil
	}
	return c.of.Out(svc, sp)
}
