package nftables

import (
	"slices"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/plan"
)

// partial renders the step from prev to next: what changed, nothing else. It keeps the ledger, which
// must be that of prev. A nil transaction means that there is nothing to do. touched are the new
// ServicePorts.
func (r *renderer) partial(l *ledger, prev, next *plan.Plan, now time.Time) (tx *knftables.Transaction, touched []*plan.ServicePort) {
	changed, removed := plan.Diff(prev, next)
	b := newBatch(r, l, now)
	for _, svc := range removed {
		if r.serves(svc.Family) {
			b.replace(svc, nil)
		}
	}
	for _, svc := range changed {
		if r.serves(svc.Family) {
			b.replace(prev.Find(svc.Name, svc.Family), svc)
		}
	}
	tx = r.nft.NewTransaction()
	if prev.Node != next.Node {
		b.replaceNode(prev.Node, next.Node)
		if !sameRanges(prev.Node, next.Node) {
			r.addRanges(tx, next.Node)
		}
	}
	b.writeTo(tx)
	return tx, changed
}

// base renders everything but Services. With fresh set the table is replaced as a whole.
func (r *renderer) base(tx *knftables.Transaction, node *plan.Node, fresh bool) {
	for _, f := range r.families {
		if fresh {
			t := &knftables.Table{Family: nftFamily(f), Name: r.table}
			tx.Add(t)
			tx.Delete(t)
		}
		r.addSchema(tx, f)
		for i := range fixedChains {
			c := &fixedChains[i]
			id := objectID{f, chainObject, c.name}
			tx.Flush(r.chain(id))
			r.addRules(tx, id, r.fixedRules(c, f))
		}
	}
	r.addRanges(tx, node)
}

// chunk renders the first ServicePorts of a plan for tables without any, about limit of them, and gives
// the rest. Ports of one Service stay together: in between, a ClusterIP's other ports are rejected.
func (r *renderer) chunk(tx *knftables.Transaction, l *ledger, list []*plan.ServicePort, limit int) (rest []*plan.ServicePort) {
	n := min(limit, len(list))
	for n > 0 && n < len(list) && sameService(list[n-1], list[n]) {
		n++
	}
	b := newBatch(r, l, time.Time{})
	for _, svc := range list[:n] {
		if r.serves(svc.Family) {
			b.replace(nil, svc)
		}
	}
	b.writeTo(tx)
	return list[n:]
}

func sameService(a, b *plan.ServicePort) bool {
	return a.Name.Namespace == b.Name.Namespace && a.Name.Name == b.Name.Name
}

// sweep renders the deletion of objects that nothing needs. Rules hold maps, and maps hold chains: so the
// rules go first, then the maps, then the chains.
func (r *renderer) sweep(tx *knftables.Transaction, objects []objectID) {
	slices.SortFunc(objects, compareObjects)
	for _, id := range objects {
		if id.kind == chainObject {
			tx.Flush(r.chain(id))
		}
	}
	for _, id := range objects {
		switch id.kind {
		case mapObject:
			tx.Delete(&knftables.Map{Family: nftFamily(id.family), Table: r.table, Name: id.name})
		case setObject:
			tx.Delete(&knftables.Set{Family: nftFamily(id.family), Table: r.table, Name: id.name})
		}
	}
	for _, id := range objects {
		if id.kind == chainObject {
			tx.Delete(r.chain(id))
		}
	}
}
