package pipeline

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// QuarantinedVersion is a ServicePort version that Edgeway leaves out because the kernel refused it. Edgeway tries the
// ServicePort again at each periodic full sync and when the ServicePort changes.
type QuarantinedVersion struct {
	Name   plan.ServicePortName `json:"name"`
	Family plan.Family          `json:"family"`
	Since  time.Time            `json:"since"`
	// Err is the error that the kernel or the backend's program returned when it refused the version.
	Err string `json:"error"`
	// Previous reports whether Edgeway serves the last accepted version instead of the refused version.
	Previous bool `json:"previous,omitempty"`
}

// String describes whether Edgeway serves the ServicePort, and why the kernel refused the new version.
func (q QuarantinedVersion) String() string {
	what := "is not served"
	if q.Previous {
		what = "keeps the previous version, because the kernel refuses the new version"
	}
	return fmt.Sprintf("%s (%s) %s: %s", q.Name, q.Family, what, q.Err)
}

// Fault returns a Service fault that describes the quarantined ServicePort.
func (q QuarantinedVersion) Fault() fault.Fault {
	field := "spec.ports"
	if q.Name.Port != "" {
		field = fmt.Sprintf("spec.ports[name=%s]", q.Name.Port)
	}
	what := "is left out"
	if q.Previous {
		what = "keeps its previous version"
	}
	key := source.Key{Kind: source.KindService, Namespace: q.Name.Namespace, Name: q.Name.Name}
	return source.FaultOf(key, field, "%s over %s %s: %s", q.Name.Protocol, q.Family, what, q.Err)
}

type quarantineKey struct {
	name   plan.ServicePortName
	family plan.Family
}

func keyOf(svc *plan.ServicePort) quarantineKey { return quarantineKey{svc.Name, svc.Family} }

type quarantineEntry struct {
	QuarantinedVersion
	digest [32]byte
	// previous is the last version that the kernel accepted, or nil if it accepted none. previous is also nil if the
	// kernel now refuses that version, or if another ServicePort, even a quarantined one, has received one of that
	// version's addresses.
	previous *plan.ServicePort
}

// quarantine holds the ServicePort versions that the backend refused, until the ServicePorts change.
type quarantine map[quarantineKey]*quarantineEntry

func (q quarantine) add(svc, previous *plan.ServicePort, err error) {
	if e := q[keyOf(svc)]; e != nil && e.previous == svc {
		e.previous = nil // the kernel now also refuses the previous version
		return
	}
	q[keyOf(svc)] = &quarantineEntry{
		QuarantinedVersion: QuarantinedVersion{Name: svc.Name, Family: svc.Family, Since: time.Now(), Err: err.Error()},
		digest:             svc.Digest, previous: previous,
	}
}

// filter deletes the entries of ServicePorts that have changed or no longer exist, and returns a copy of p. The copy
// contains the previous version of each quarantined ServicePort, and omits the ServicePort if it has no previous
// version. If no entry remains, filter returns p itself.
func (q quarantine) filter(p *plan.Plan) *plan.Plan {
	var kept []*plan.ServicePort
	for key, entry := range q {
		if svc := p.Find(key.name, key.family); svc == nil || svc.Digest != entry.digest {
			delete(q, key)
		} else if entry.previous != nil {
			kept = append(kept, entry.previous)
		}
	}
	if len(q) == 0 {
		return p
	}
	claimed := conflictingVersions(p, kept)
	for _, entry := range q {
		if entry.previous != nil && claimed[keyOf(entry.previous)] {
			entry.previous = nil
		}
		entry.Previous = entry.previous != nil
	}
	return replace(p, func(svc *plan.ServicePort) *plan.ServicePort {
		switch entry := q[keyOf(svc)]; {
		case entry == nil:
			return svc
		case entry.Previous:
			return entry.previous
		}
		return nil
	})
}

// replace returns a copy of p in which with(svc) replaces each ServicePort svc. If with returns nil, the copy omits the
// ServicePort. The copy shares all other data with p.
func replace(p *plan.Plan, with func(*plan.ServicePort) *plan.ServicePort) *plan.Plan {
	sub := *p
	sub.Services = make([]*plan.ServicePort, 0, len(p.Services))
	for _, svc := range p.Services {
		if svc = with(svc); svc != nil {
			sub.Services = append(sub.Services, svc)
		}
	}
	return &sub
}

// exclusivePort is an address and port that only one ServicePort may have. The exclusivePort of a NodePort has no
// address.
type exclusivePort struct {
	addr     netip.Addr
	family   plan.Family
	protocol plan.Protocol
	port     uint16
}

func exclusivePortOf(svc *plan.ServicePort, f *plan.Frontend) exclusivePort {
	return exclusivePort{f.Addr, svc.Family, svc.Name.Protocol, f.Port}
}

// conflictingVersions returns the keys of the versions that share an address and port with another ServicePort in p.
func conflictingVersions(p *plan.Plan, versions []*plan.ServicePort) map[quarantineKey]bool {
	if len(versions) == 0 {
		return nil
	}
	had := map[exclusivePort]quarantineKey{}
	for _, svc := range versions {
		for i := range svc.Frontends {
			had[exclusivePortOf(svc, &svc.Frontends[i])] = keyOf(svc)
		}
	}
	claimed := map[quarantineKey]bool{}
	for _, svc := range p.Services {
		for i := range svc.Frontends {
			if owner, ok := had[exclusivePortOf(svc, &svc.Frontends[i])]; ok && owner != keyOf(svc) {
				claimed[owner] = true
			}
		}
	}
	return claimed
}

func (q quarantine) list() []QuarantinedVersion {
	out := make([]QuarantinedVersion, 0, len(q))
	for _, e := range q {
		out = append(out, e.QuarantinedVersion)
	}
	return out
}

func sortQuarantined(list []QuarantinedVersion) []QuarantinedVersion {
	slices.SortFunc(list, func(a, b QuarantinedVersion) int {
		return cmp.Or(a.Name.Compare(b.Name), cmp.Compare(a.Family, b.Family))
	})
	return list
}
