package nftables

import (
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// Each of the following rules only looks up an element. The lookup increments the element's counter.
const (
	countService  = "$ip daddr . meta l4proto . th dport @service-connections"
	countNodePort = "$ip daddr @nodeport-addresses meta l4proto . th dport @nodeport-connections"
)

// countSets returns the sets that count new connections. The frontend maps have no counters, because an endpoint change
// replaces a frontend's element and its counter.
func (o Options) countSets() []nfttable.Set {
	if !o.CountConnections {
		return nil
	}
	key := []nfttable.Field{nfttable.Addr, nfttable.Proto, nfttable.Port}
	return []nfttable.Set{
		{Name: "service-connections", Key: key, Counts: true, Named: true},
		{Name: "nodeport-connections", Key: key[1:], Counts: true, Named: true},
	}
}

// countSet returns the SetID of the set that counts the connections to a kind of frontend.
func (o Options) countSet(kind plan.FrontendKind) nfttable.SetID {
	id := FirstOwnSet + nfttable.SetID(len(o.Sets))
	if kind == plan.NodePort {
		id++
	}
	return id
}

// Connections implements proxiers.Counter for a table.
func Connections(t *nfttable.Table, p *plan.Plan, add func(*plan.ServicePort, plan.FrontendKind, uint64)) error {
	counts, err := t.Counts()
	if err != nil {
		return err
	}
	for _, svc := range p.Services {
		for i := range svc.Frontends {
			f := &svc.Frontends[i]
			key := nfttable.Element{Family: svc.Family, Proto: svc.Name.Protocol, Addr: f.Addr, Port: f.Port}
			if n := counts[key]; n > 0 {
				add(svc, f.Kind, n)
			}
		}
	}
	return nil
}
