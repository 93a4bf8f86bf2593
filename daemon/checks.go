package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/plural"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// checks are the checks of endpoints that a configuration asks for. Without any, it does nothing, and costs nothing.
type checks struct {
	endpoints *endpointcheck.Checker
	of        planner.Checks
	lost      lost
}

// useChecks has the Checker, which outlives the instances, do what cfg says.
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
		Manifests: slices.Contains(tcp.Sources, config.CheckedFile), API: slices.Contains(tcp.Sources, config.CheckedKube),
		Dead: endpoints.Dead,
	}}
}

func (c *checks) on() bool { return c.of.Dead != nil }

// run checks the endpoints.
func (c *checks) run(start starter) {
	if c.on() {
		start("endpoint checks", c.endpoints.Run)
	}
}

// follow takes over from the planner what to check.
func (c *checks) follow(p *planner.Planner) {
	if c.on() {
		c.endpoints.Follow(p.Checked())
	}
}

// conditions are one while endpoints are dead, which names the one that is dead for longest, and one while a port of a
// Service of the plan has no other. Strangers ask for them.
func (c *checks) conditions(p *plan.Plan) []health.Condition {
	dead := c.endpoints.Dead()
	if dead.Len() == 0 {
		return nil
	}
	var first netip.AddrPort
	for at, f := range dead.Faults {
		if before := dead.Faults[first]; !first.IsValid() || cmp.Or(f.Since.Compare(before.Since), at.Compare(first)) < 0 {
			first = at
		}
	}
	fault := dead.Faults[first]
	text := fmt.Sprintf("%d of %s without an answer, %s for one (%s): they get no connections while another one of their Service answers",
		dead.Len(), plural.Of(c.endpoints.Endpoints(), "checked endpoint"), first, fault.Err)
	return append(c.lost.conditions(p, dead), health.Condition{Name: "endpoint-checks", Level: health.Warning, Since: fault.Since, Message: text})
}

// status is for edgeway status; nil: nothing is checked.
func (c *checks) status() *control.StatusChecks {
	if !c.on() {
		return nil
	}
	return control.NewStatusChecks(c.endpoints.Endpoints(), c.endpoints.Dead())
}

// out names the dead endpoints of a ServicePort.
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
