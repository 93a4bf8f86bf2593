package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"

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

// endpointChecks runs the configured endpoint checks. The methods of endpointChecks do nothing if the configuration
// enables no checks.
type endpointChecks struct {
	endpoints *endpointcheck.Checker
	of        planner.Checks
	services  deadPoolFinder
}

// newEndpointChecks returns the configured endpoint checks, and configures the Checker, which survives a reload.
func newEndpointChecks(cfg *config.Config, endpoints *endpointcheck.Checker) *endpointChecks {
	tcp := cfg.Checks.TCP
	if len(tcp.Sources) == 0 {
		endpoints.Forget()
		return &endpointChecks{endpoints: endpoints}
	}
	endpoints.Configure(endpointcheck.Settings{
		Interval: tcp.Interval, Failures: tcp.Failures, Mark: proxiers.OwnMark(cfg.Proxy.MasqueradeBit),
	})
	return &endpointChecks{endpoints: endpoints, of: planner.Checks{
		Manifests:     slices.Contains(tcp.Sources, config.CheckedFile),
		API:           slices.Contains(tcp.Sources, config.CheckedKube),
		DeadEndpoints: endpoints.DeadEndpoints,
	}}
}

func (c *endpointChecks) on() bool { return c.of.DeadEndpoints != nil }

func (c *endpointChecks) run(start starter) {
	if c.on() {
		start("endpoint checks", c.endpoints.Run)
	}
}

func (c *endpointChecks) follow(p *planner.Planner) {
	if c.on() {
		c.endpoints.UpdateTargets(p.CheckChanges())
	}
}

// faults returns a fault that names the endpoint that has been dead the longest, and a fault for each ServicePort with
// failing connections.
func (c *endpointChecks) faults(p *plan.Plan) []fault.Fault {
	dead := c.endpoints.DeadEndpoints()
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
	message := fmt.Sprintf("the endpoint %s does not answer (%s): it gets no new connections while "+
		"another endpoint of the same Service answers", first, longest.Message)
	if dead.Len() > 1 {
		message = fmt.Sprintf("%d of %s do not answer, for example %s (%s): a dead endpoint gets no "+
			"new connections while another endpoint of the same Service answers", dead.Len(),
			text.Count(c.endpoints.CountEndpoints(), "checked endpoint"), first, longest.Message)
	}
	return append(c.services.faults(p, dead),
		fault.Fault{ID: "endpoint-checks", Severity: fault.Warning, Since: longest.Since, Message: message})
}

// status returns the checks section of "edgeway status", or nil if Edgeway checks no endpoints.
func (c *endpointChecks) status() *control.StatusChecks {
	if !c.on() {
		return nil
	}
	return &control.StatusChecks{Endpoints: c.endpoints.CountEndpoints(), Dead: c.endpoints.DeadEndpoints().Len()}
}

func (c *endpointChecks) dead() *endpointcheck.DeadEndpoints {
	if !c.on() {
		return nil
	}
	return c.endpoints.DeadEndpoints()
}

// describeDead describes a ServicePort's dead endpoints, which receive no new connections.
func (c *endpointChecks) describeDead(state pipeline.State, sp *plan.ServicePort) []string {
	if !c.on() || state.Snapshot == nil {
		return nil
	}
	svc := state.Snapshot.Find(tracker.Name{Namespace: sp.Name.Namespace, Name: sp.Name.Name})
	if svc == nil {
		return nil
	}
	return c.of.DescribeDead(svc, sp)
}

// deadPoolFinder finds the ServicePorts that have a pool with only dead endpoints, because connections to that pool
// fail. deadPoolFinder recomputes the faults only if the plan or the set of dead endpoints has changed, because clients
// on other hosts can request the faults.
type deadPoolFinder struct {
	mu    sync.Mutex
	plan  *plan.Plan
	dead  *endpointcheck.DeadEndpoints
	known []fault.Fault
}

// faults returns a fault for each ServicePort with failing connections.
func (d *deadPoolFinder) faults(p *plan.Plan, dead *endpointcheck.DeadEndpoints) []fault.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plan != p || d.dead != dead {
		d.plan, d.dead, d.known = p, dead, deadServicesOf(p, dead)
	}
	return slices.Clip(d.known)
}

func deadServicesOf(p *plan.Plan, dead *endpointcheck.DeadEndpoints) (out []fault.Fault) {
	if p == nil {
		return nil
	}
	for _, sp := range p.Services {
		pool := deadPool(sp, dead)
		if pool == nil {
			continue
		}
		last := dead.Faults[pool[0].Addr]
		for _, e := range pool {
			if f := dead.Faults[e.Addr]; f.Since.After(last.Since) {
				last = f
			}
		}
		at, service := pool[0].Addr, sp.Name.Namespace+"/"+sp.Name.Name
		out = append(out, fault.Fault{
			ID: "services-dead", Severity: fault.Problem, Since: last.Since,
			// The scope is limited to one endpoint, because connections that use the ServicePort's other pool never
			// reach it.
			Scope: fault.Scope{ServicePort: sp.Name.String(), To: netip.PrefixFrom(at.Addr(), at.Addr().BitLen())},
			Message: fmt.Sprintf("connections to %s (%s) fail: no endpoint answers (for example %s: %s)",
				sp.Name, sp.Family, at, dead.Faults[at].Message),
			Fix: fmt.Sprintf(
				"edgeway doctor --connect %s --trace  # if no rule or route is at fault, start the program that should listen on %s",
				service, at),
		})
	}
	return out
}

// deadPool returns a pool that a frontend uses and that has only dead endpoints, or nil if there is no such pool.
func deadPool(sp *plan.ServicePort, dead *endpointcheck.DeadEndpoints) []plan.Endpoint {
	for i := range sp.Frontends {
		for _, r := range sp.Frontends[i].Routes {
			if r.Verdict != plan.Forward {
				continue
			}
			of := sp.Pools[r.Pool]
			if len(of) > 0 && !slices.ContainsFunc(of, func(e plan.Endpoint) bool { return !dead.Has(e.Addr) }) {
				return of
			}
		}
	}
	return nil
}
