package pipeline

import (
	"fmt"
	"slices"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Quarantined is a ServicePort that is left out because the kernel refused it. It is tried again
// when it changes, and at the periodic full sync.
type Quarantined struct {
	Name   plan.ServicePortName
	Family plan.Family
	Since  time.Time
	// Err is the kernel's or the tool's refusal.
	Err string
}

// Problem says it as the fault of the Service.
func (q Quarantined) Problem() source.Problem {
	field := "spec.ports"
	if q.Name.Port != "" {
		field = fmt.Sprintf("spec.ports[name=%s]", q.Name.Port)
	}
	return source.Problem{
		Object:  source.Key{Kind: source.KindService, Namespace: q.Name.Namespace, Name: q.Name.Name},
		Field:   field,
		Message: fmt.Sprintf("%s over %s is left out: %s", q.Name.Protocol, q.Family, q.Err),
	}
}

type quarantineKey struct {
	name   plan.ServicePortName
	family plan.Family
}

type quarantineEntry struct {
	Quarantined
	digest [32]byte
}

// quarantine holds what the backend refused, until it changes.
type quarantine map[quarantineKey]quarantineEntry

func (q quarantine) add(svc *plan.ServicePort, err error) {
	q[quarantineKey{svc.Name, svc.Family}] = quarantineEntry{
		Quarantined: Quarantined{Name: svc.Name, Family: svc.Family, Since: time.Now(), Err: err.Error()},
		digest:      svc.Digest,
	}
}

// filter forgets entries that changed or are gone, and gives p without the others: p itself when
// there are none.
func (q quarantine) filter(p *plan.Plan) *plan.Plan {
	for key, entry := range q {
		if svc := p.Find(key.name, key.family); svc == nil || svc.Digest != entry.digest {
			delete(q, key)
		}
	}
	if len(q) == 0 {
		return p
	}
	return filter(p, func(svc *plan.ServicePort) bool {
		_, out := q[quarantineKey{svc.Name, svc.Family}]
		return !out
	})
}

// filter gives a plan with the ServicePorts that keep accepts; all else is shared.
func filter(p *plan.Plan, keep func(*plan.ServicePort) bool) *plan.Plan {
	sub := *p
	sub.Services = make([]*plan.ServicePort, 0, len(p.Services))
	for _, svc := range p.Services {
		if keep(svc) {
			sub.Services = append(sub.Services, svc)
		}
	}
	return &sub
}

// list is sorted by name and family.
func (q quarantine) list() []Quarantined {
	out := make([]Quarantined, 0, len(q))
	for _, e := range q {
		out = append(out, e.Quarantined)
	}
	slices.SortFunc(out, func(a, b Quarantined) int {
		if c := a.Name.Compare(b.Name); c != 0 {
			return c
		}
		return int(a.Family) - int(b.Family)
	})
	return out
}
