package daemon

import (
	"fmt"
	"slices"
	"sync"

	"edgeway/daemon/endpointcheck"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// deadServices finds the ServicePorts to which connections fail because none of their endpoints answers. It computes
// its faults again when the plan or the dead endpoints have changed.
type deadServices struct {
	mu    sync.Mutex
	plan  *plan.Plan
	dead  *endpointcheck.Dead
	known []fault.Fault
}

// faults returns a fault for each of the ServicePorts.
func (d *deadServices) faults(p *plan.Plan, dead *endpointcheck.Dead) []fault.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plan != p || d.dead != dead {
		d.plan, d.dead, d.known = p, dead, deadServicesOf(p, dead)
	}
	return slices.Clip(d.known)
}

func deadServicesOf(p *plan.Plan, dead *endpointcheck.Dead) (out []fault.Fault) {
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
			ID: "services-dead", Severity: fault.Problem, Since: last.Since, Scope: fault.Scope{Service: service},
			Message: fmt.Sprintf("connections to %s (%s) fail: of the endpoints that they may go to none answers, %s for one (%s)",
				sp.Name, sp.Family, at, dead.Faults[at].Err),
			Fix: fmt.Sprintf("start the program at %s; if it runs there: edgeway doctor --connect %s --trace", at, service),
		})
	}
	return out
}

// deadPool returns a pool that a frontend forwards to and whose endpoints are all dead.
func deadPool(sp *plan.ServicePort, dead *endpointcheck.Dead) []plan.Endpoint {
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
