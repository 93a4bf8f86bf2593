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
// its conditions again when the plan or the dead endpoints have changed.
type deadServices struct {
	mu    sync.Mutex
	plan  *plan.Plan
	dead  *endpointcheck.Dead
	known []fault.Fault
}

// conditions returns one condition, which names the first of the ServicePorts, or none.
func (d *deadServices) conditions(p *plan.Plan, dead *endpointcheck.Dead) []fault.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plan != p || d.dead != dead {
		d.plan, d.dead, d.known = p, dead, deadServicesOf(p, dead)
	}
	return slices.Clip(d.known)
}

func deadServicesOf(p *plan.Plan, dead *endpointcheck.Dead) []fault.Fault {
	if p == nil {
		return nil
	}
	var first *plan.ServicePort
	var pool []plan.Endpoint
	more := -1
	for _, sp := range p.Services {
		if of := deadPool(sp, dead); of != nil {
			if more++; first == nil {
				first, pool = sp, of
			}
		}
	}
	if first == nil {
		return nil
	}
	last := dead.Faults[pool[0].Addr]
	for _, e := range pool {
		if f := dead.Faults[e.Addr]; f.Since.After(last.Since) {
			last = f
		}
	}
	at, service := pool[0].Addr, first.Name.Namespace+"/"+first.Name.Name
	c := fault.Fault{ID: "services-dead", Severity: fault.Problem, Since: last.Since}
	c.Message = fmt.Sprintf("connections to %s (%s) fail: of the endpoints that they may go to none answers, %s for one (%s)",
		first.Name, first.Family, at, dead.Faults[at].Err)
	if more > 0 {
		c.Message += fmt.Sprintf("; and so do those to %d more", more)
	}
	c.Fix = fmt.Sprintf("start the program at %s; if it runs there: edgeway doctor --connect %s --trace", at, service)
	return []fault.Fault{c}
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
