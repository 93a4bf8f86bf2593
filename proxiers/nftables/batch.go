package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/plan"
)

// batch collects what one transaction has to do. Within a transaction the order has no meaning for
// packets, which see all of it or nothing; it has one for nft, which wants keys deleted before they
// are added again, and elements of a set together.
type batch struct {
	r      *renderer
	ledger *ledger
	now    time.Time

	created []object
	// deleted and added are indexed by family, then set.
	deleted, added [2][numSets][]entry
	old, new       footprint
}

func newBatch(r *renderer, l *ledger, now time.Time) *batch {
	return &batch{r: r, ledger: l, now: now, old: footprint{ledger: l}, new: footprint{ledger: l}}
}

func familyIndex(f plan.Family) int {
	if f == plan.IPv4 {
		return 0
	}
	return 1
}

func (b *batch) add(e entry) {
	list := &b.added[familyIndex(e.family)][e.set]
	*list = append(*list, e)
}

func (b *batch) delete(e entry) {
	list := &b.deleted[familyIndex(e.family)][e.set]
	*list = append(*list, e)
}

// replace changes one ServicePort. A nil prev is new, a nil next is gone.
func (b *batch) replace(prev, next *plan.ServicePort) {
	b.old.describe(prev)
	b.new.describe(next)
	for _, o := range b.new.objects {
		first, absent := b.ledger.takeObject(o.objectID)
		if absent {
			b.created = append(b.created, o)
		}
		if first && o.class != nil {
			b.add(b.ledger.classEntry(o.objectID))
		}
	}
	for _, o := range b.old.objects {
		if b.ledger.dropObject(o.objectID, b.now) && o.class != nil {
			b.delete(b.ledger.classEntry(o.objectID))
		}
	}
	for _, e := range b.new.shared {
		if b.ledger.take(e) {
			b.add(entry{element: e})
		}
	}
	for _, e := range b.old.shared {
		if b.ledger.drop(e) {
			b.delete(entry{element: e})
		}
	}
	b.diff(b.old.entries, b.new.entries)
}

// diff adds and deletes what differs between two lists without duplicates.
func (b *batch) diff(old, next []entry) {
	wanted := make(map[element]value, min(len(old), len(next)))
	if len(old) > 0 {
		for _, e := range next {
			wanted[e.element] = e.value
		}
	}
	kept := make(map[element]bool, len(wanted))
	for _, e := range old {
		if v, ok := wanted[e.element]; ok && v == e.value {
			kept[e.element] = true
		} else {
			b.delete(e)
		}
	}
	for _, e := range next {
		if !kept[e.element] {
			b.add(e)
		}
	}
}

// replaceNode changes the elements that follow from the host.
func (b *batch) replaceNode(prev, next *plan.Node) {
	b.diff(nodeEntries(b.r, prev), nodeEntries(b.r, next))
}

// addNode adds the elements that follow from the host to tables that have none.
func (r *renderer) addNode(tx *knftables.Transaction, node *plan.Node) {
	b := newBatch(r, nil, time.Time{})
	b.replaceNode(nil, node)
	b.writeTo(tx)
}

// nodeEntries gives the addresses that accept NodePorts: those served here, and those on loopback.
func nodeEntries(r *renderer, n *plan.Node) []entry {
	var out []entry
	if n == nil {
		return nil
	}
	for _, a := range n.NodePortAddrs {
		if f := plan.FamilyOf(a); r.serves(f) && !a.IsLoopback() {
			out = append(out, entry{element: element{family: f, set: nodePortAddrs, addr: a}})
		}
	}
	for _, a := range n.LoopbackAddrs {
		if f := plan.FamilyOf(a); r.serves(f) {
			out = append(out, entry{element: element{family: f, set: loopbackAddrs, addr: a}})
		}
	}
	return out
}

// writeTo adds the batch to a transaction.
func (b *batch) writeTo(tx *knftables.Transaction) {
	for _, o := range b.created {
		b.r.addObject(tx, o)
	}
	for _, f := range b.r.families {
		for _, list := range b.deleted[familyIndex(f)] {
			for group := range slices.Chunk(list, elementsPerCommand) {
				tx.Delete(b.r.elements(group, false))
			}
		}
	}
	for _, f := range b.r.families {
		for _, list := range b.added[familyIndex(f)] {
			for group := range slices.Chunk(list, elementsPerCommand) {
				tx.Add(b.r.elements(group, true))
			}
		}
	}
}

// addObject adds a chain with its rules, or a map.
func (r *renderer) addObject(tx *knftables.Transaction, o object) {
	if o.kind == mapObject {
		tx.Add(r.clientMap(o))
		return
	}
	chain := r.chain(o.objectID)
	tx.Add(chain)
	tx.Flush(chain)
	r.addRules(tx, o.objectID, r.objectRules(o))
}

func (r *renderer) objectRules(o object) []string {
	if o.class != nil {
		return o.class.rules(r)
	}
	ip := ipKeyword(o.family)
	var rules []string
	for _, name := range o.noted {
		// The packet's own source may be masqueraded already, when the host talks to itself.
		rules = append(rules, fmt.Sprintf("update @%s { ct original %s saddr : %s daddr }", name, ip, ip))
	}
	return rules
}

func (r *renderer) clientMap(o object) *knftables.Map {
	size, timeout := uint64(clientsPerMap), o.timeout
	return &knftables.Map{
		Family: nftFamily(o.family), Table: r.table, Name: o.name,
		Type:  addrType(o.family) + " : " + addrType(o.family),
		Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}, Timeout: &timeout, Size: &size,
	}
}

func (r *renderer) chain(id objectID) *knftables.Chain {
	return &knftables.Chain{Family: nftFamily(id.family), Table: r.table, Name: id.name}
}

func (r *renderer) addRules(tx *knftables.Transaction, id objectID, rules []string) {
	for _, rule := range rules {
		tx.Add(&knftables.Rule{Family: nftFamily(id.family), Table: r.table, Chain: id.name, Rule: rule})
	}
}

// elementsPerCommand bounds the length of a command; more than a few hundred saves nothing.
const elementsPerCommand = 200

// elements gives several elements of one set as the operand of an add or, without values, of a
// delete. knftables has one element in mind and writes "{ key : value }" as it is told; we make "key" a list
// that ends with the last key. Compared with a command for each element that halves nft's CPU time.
func (r *renderer) elements(group []entry, withValues bool) *knftables.Element {
	spec := &specs[group[0].set]
	el := &knftables.Element{Family: nftFamily(group[0].family), Table: r.table}
	var list []byte
	for i := range group {
		if i > 0 {
			list = append(list, ", "...)
		}
		list = group[i].appendKey(list)
		if withValues && spec.data != noData && i < len(group)-1 {
			list = group[i].appendValue(append(list, " : "...))
		}
	}
	el.Key = []string{string(list)}
	if spec.data == noData {
		el.Set = spec.name
		return el
	}
	el.Map = spec.name
	if withValues {
		el.Value = []string{string(group[len(group)-1].appendValue(nil))}
	}
	return el
}

// addRanges writes the interval sets anew.
func (r *renderer) addRanges(tx *knftables.Transaction, n *plan.Node) {
	for _, f := range r.families {
		r.addRange(tx, f, podSources, n.PodSources)
		r.addRange(tx, f, serviceCIDRs, n.ServiceCIDRs)
	}
}

func (r *renderer) addRange(tx *knftables.Transaction, f plan.Family, set string, ranges []netip.Prefix) {
	tx.Flush(&knftables.Set{Family: nftFamily(f), Table: r.table, Name: set})
	for _, p := range minimal(ranges, f) {
		tx.Add(&knftables.Element{Family: nftFamily(f), Table: r.table, Set: set, Key: []string{p.String()}})
	}
}

// sameRanges says that addRanges would change nothing.
func sameRanges(a, b *plan.Node) bool {
	return a == b || slices.Equal(a.PodSources, b.PodSources) && slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs)
}
