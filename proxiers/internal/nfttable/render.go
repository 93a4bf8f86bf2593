package nfttable

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// renderer converts plans to transactions and does not depend on the kernel's state.
type renderer struct {
	Schema
	families []plan.Family
	// templates holds each family's replacer for the variables in rule templates.
	templates [2]*strings.Replacer
	// chunkSize is the number of elements after which a batch sends a transaction.
	chunkSize int
	// node is the host that renderBase renders the rules for.
	node *plan.Node
}

func newRenderer(s Schema, families []plan.Family, masqueradeBit int) *renderer {
	r := &renderer{Schema: s, families: families, chunkSize: cmp.Or(s.ChunkSize, chunkElements)}
	mark := uint32(1) << masqueradeBit
	for _, f := range families {
		r.templates[familyIndex(f)] = strings.NewReplacer("$ip", ipKeyword(f),
			"$mark", fmt.Sprintf("0x%08x", mark), "$rest", fmt.Sprintf("0x%08x", ^mark),
			"$own", fmt.Sprintf("0x%08x", proxiers.OwnMark(masqueradeBit)))
	}
	return r
}

func (r *renderer) serves(f plan.Family) bool { return slices.Contains(r.families, f) }

// eachNeeds calls visit with the needs of each ServicePort in the plan, and reuses one Needs for all calls.
func (r *renderer) eachNeeds(refs *references, p *plan.Plan, visit func(*Needs)) {
	n := Needs{refs: refs}
	for _, svc := range p.Services {
		if r.serves(svc.Family) {
			n.update(&r.Schema, svc)
			visit(&n)
		}
	}
}

// addReferences adds the plan's references to refs, which must be empty, and returns the plan's objects.
func (r *renderer) addReferences(refs *references, p *plan.Plan) (objects []Object) {
	r.eachNeeds(refs, p, func(n *Needs) {
		for _, o := range n.objects {
			if first, _ := refs.takeObject(o.ObjectID); first {
				objects = append(objects, o)
			}
		}
		for _, e := range n.shared {
			refs.take(e)
		}
	})
	return objects
}

// fillTables writes the contents that the plan requires into new tables.
func (b *batch) fillTables(next *plan.Plan, o baseOptions, done func(int)) error {
	o.elements = true
	b.r.renderBase(b.tx, next.Node, o)
	if err := b.collect(serviceChanges{list: next.Services, versions: added, progress: done}); err != nil {
		return err
	}
	if !o.takeover {
		return b.flush()
	}
	if err := b.flush(); err != nil {
		return err
	}
	// The Table treats a transaction that changes nothing as a failure.
	if slices.ContainsFunc(b.r.Ranges, func(set Range) bool {
		return set.FillLast && len(set.Prefixes(next.Node)) > 0
	}) {
		b.r.addRanges(b.tx, next.Node, false)
	}
	return b.flush()
}

// addDifference adds the difference between two plans to the batch. b.refs must hold the references of change.Prev.
func (b *batch) addDifference(change proxiers.Change) error {
	if err := b.collect(serviceChanges{list: change.Removed, versions: removed}); err != nil {
		return err
	}
	err := b.collect(serviceChanges{
		list: change.Changed,
		versions: func(svc *plan.ServicePort) (old, next *plan.ServicePort) {
			return change.Prev.Find(svc.Name, svc.Family), svc
		},
		moves: func() bool { return b.moves(change) },
	})
	if err != nil {
		return err
	}
	if prev, next := change.Prev.Node, change.Next.Node; prev != next {
		b.diff(b.r.NodeEntries(prev), b.r.NodeEntries(next))
		if slices.ContainsFunc(b.r.Ranges, func(set Range) bool {
			return !slices.Equal(set.Prefixes(prev), set.Prefixes(next))
		}) {
			b.r.addRanges(b.tx, next, false)
		}
	}
	return b.flush()
}

// moves reports whether an element moves from one changed ServicePort to another.
func (b *batch) moves(change proxiers.Change) bool {
	owners := map[Element]*plan.ServicePort{}
	n := Needs{refs: b.refs}
	for _, svc := range change.Changed {
		if old := change.Prev.Find(svc.Name, svc.Family); old != nil && b.r.serves(svc.Family) {
			n.update(&b.r.Schema, old)
			for _, e := range n.entries {
				owners[e.Element] = svc
			}
		}
	}
	for _, svc := range change.Changed {
		if !b.r.serves(svc.Family) {
			continue
		}
		n.update(&b.r.Schema, svc)
		for _, e := range n.entries {
			if owner := owners[e.Element]; owner != nil && owner != svc {
				return true
			}
		}
	}
	return false
}

// baseOptions holds the options for renderBase. If fresh is set, renderBase replaces whole tables. If elements is set,
// renderBase adds the host's elements, which the tables must not contain yet. If takeover is set, renderBase leaves the
// ranges with Range.FillLast empty.
type baseOptions struct{ fresh, elements, takeover bool }

// renderBase renders everything in the tables except the Services.
func (r *renderer) renderBase(tx *knftables.Transaction, node *plan.Node, o baseOptions) {
	r.node = node
	for _, f := range r.families {
		if o.fresh {
			t := &knftables.Table{Family: nftFamily(f), Name: r.Table}
			tx.Add(t)
			tx.Delete(t)
		}
		r.addSchema(tx, f)
		for _, c := range r.Chains {
			id := ObjectID{f, ChainObject, c.Name}
			tx.Flush(r.chain(id))
			r.addRules(tx, id, c.Rules)
		}
	}
	r.addRanges(tx, node, o.takeover)
	if o.elements {
		b := newBatch(r, nil, time.Time{})
		b.tx = tx
		b.diff(nil, r.NodeEntries(node))
		b.write(b.added, false, true)
	}
}

// addSchema adds the table, the fixed sets, maps and chains, and the counters, but no rules.
func (r *renderer) addSchema(tx *knftables.Transaction, f plan.Family) {
	nf := nftFamily(f)
	tx.Add(&knftables.Table{Family: nf, Name: r.Table})
	for i := range r.Sets {
		r.Sets[i].add(tx, r.Table, f)
	}
	for _, set := range r.Ranges {
		tx.Add(&knftables.Set{
			Family: nf, Table: r.Table, Name: set.Name, Type: addrType(f),
			Flags: []knftables.SetFlag{knftables.IntervalFlag},
		})
	}
	for _, name := range r.Counters {
		tx.Add(&knftables.Counter{Family: nf, Table: r.Table, Name: name})
	}
	for i := range r.Chains {
		r.Chains[i].add(tx, r.Table, f)
	}
}

// addRanges replaces the elements of the interval sets.
func (r *renderer) addRanges(tx *knftables.Transaction, n *plan.Node, takeover bool) {
	for _, f := range r.families {
		for _, set := range r.Ranges {
			tx.Flush(&knftables.Set{Family: nftFamily(f), Table: r.Table, Name: set.Name})
			if takeover && set.FillLast {
				continue
			}
			for _, p := range plan.FilterByFamily(set.Prefixes(n), f) {
				tx.Add(&knftables.Element{
					Family: nftFamily(f), Table: r.Table, Set: set.Name,
					Key: []string{p.String()},
				})
			}
		}
	}
}

func (r *renderer) addObject(tx *knftables.Transaction, o Object) {
	if o.Kind == MapObject {
		tx.Add(&knftables.Map{
			Family: nftFamily(o.Family), Table: r.Table, Name: o.Name,
			Type: addrType(o.Family) + " : " + addrType(o.Family),
			Flags: []knftables.SetFlag{
				knftables.DynamicFlag,
				knftables.TimeoutFlag,
			}, Timeout: &o.Timeout, Size: &o.Size,
		})
		return
	}
	chain := r.chain(o.ObjectID)
	tx.Add(chain)
	tx.Flush(chain)
	r.addRules(tx, o.ObjectID, o.Rules.Rules(r.node))
}

func (r *renderer) chain(id ObjectID) *knftables.Chain {
	return &knftables.Chain{Family: nftFamily(id.Family), Table: r.Table, Name: id.Name}
}

func (r *renderer) addRules(tx *knftables.Transaction, id ObjectID, rules []string) {
	for _, rule := range rules {
		tx.Add(&knftables.Rule{
			Family: nftFamily(id.Family), Table: r.Table, Chain: id.Name,
			Rule: r.templates[familyIndex(id.Family)].Replace(rule),
		})
	}
}

// sweep returns a transaction that deletes unused objects. Rules refer to maps, and maps refer to chains, so sweep
// first deletes the rules, then the maps, and then the chains.
func (r *renderer) sweep(objects []ObjectID) *knftables.Transaction {
	tx := newTransaction()
	slices.SortFunc(objects, func(a, b ObjectID) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, id := range objects {
		if id.Kind == ChainObject {
			tx.Flush(r.chain(id))
		}
	}
	for _, id := range objects {
		switch id.Kind {
		case MapObject:
			tx.Delete(&knftables.Map{Family: nftFamily(id.Family), Table: r.Table, Name: id.Name})
		case setObject:
			tx.Delete(&knftables.Set{Family: nftFamily(id.Family), Table: r.Table, Name: id.Name})
		}
	}
	for _, id := range objects {
		if id.Kind == ChainObject {
			tx.Delete(r.chain(id))
		}
	}
	return tx
}
