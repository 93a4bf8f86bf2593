package nftables

import (
	"bytes"
	"hash/maphash"
	"slices"

	"edgeway/proxiers/plan"
)

// contents are the entries of some sets as the kernel has them, by set and key. An element's key
// names its family too.
type contents map[setID]map[element]value

// checksum is the number of elements of a set and a sum over them that does not depend on their order.
type checksum struct {
	count int
	sum   uint64
}

// checksums is indexed by family, then set.
type checksums [2][numSets]checksum

// summer adds entries to checksums.
type summer struct {
	seed maphash.Seed
	buf  []byte
}

func (s *summer) add(c *checksum, e *entry) {
	s.buf = e.appendValue(append(e.appendKey(s.buf[:0]), ' '))
	c.count++
	c.sum += maphash.Bytes(s.seed, s.buf)
}

// enlist counts in an empty ledger what the plan needs, and gives the objects.
func (r *renderer) enlist(l *ledger, next *plan.Plan) (objects []object) {
	fp := footprint{ledger: l}
	for _, svc := range next.Services {
		if !r.serves(svc.Family) {
			continue
		}
		fp.describe(svc)
		for _, o := range fp.objects {
			if first, _ := l.takeObject(o.objectID); first {
				objects = append(objects, o)
			}
		}
		for _, e := range fp.shared {
			l.take(e)
		}
	}
	return objects
}

// each visits every entry that the plan wants; the ledger is the plan's. Entries are not held in
// memory: there are several for each endpoint.
func (r *renderer) each(l *ledger, next *plan.Plan, visit func(*entry)) {
	fp := footprint{ledger: l}
	for _, svc := range next.Services {
		if !r.serves(svc.Family) {
			continue
		}
		fp.describe(svc)
		for i := range fp.entries {
			visit(&fp.entries[i])
		}
	}
	for e := range l.shared {
		visit(&entry{element: e})
	}
	for id := range l.classes {
		e := l.classEntry(id)
		visit(&e)
	}
	for _, e := range nodeEntries(r, next.Node) {
		visit(&e)
	}
}

// compare gives the contents of the kernel's sets that differ from the plan. Most often none does, and
// then no set is held in memory.
func (r *renderer) compare(c *nfConn, l *ledger, next *plan.Plan) (contents, error) {
	s := summer{seed: maphash.MakeSeed()}
	var want, have checksums
	r.each(l, next, func(e *entry) { s.add(&want[familyIndex(e.family)][e.set], e) })
	differing := contents{}
	names := map[string]string{}
	for _, f := range r.families {
		for set := range numSets {
			sum := &have[familyIndex(f)][set]
			err := r.read(c, f, set, names, func(e *entry) { s.add(sum, e) })
			if err != nil {
				return nil, err
			}
			if *sum != want[familyIndex(f)][set] && differing[set] == nil {
				differing[set] = map[element]value{}
			}
		}
	}
	for set, have := range differing {
		for _, f := range r.families {
			if err := r.read(c, f, set, names, func(e *entry) { have[e.element] = e.value }); err != nil {
				return nil, err
			}
		}
	}
	return differing, nil
}

func (r *renderer) read(c *nfConn, f plan.Family, set setID, names map[string]string, visit func(*entry)) error {
	return c.elements(f, r.table, specs[set].name, func(raw rawElement) error {
		e, err := decode(f, set, raw, names)
		if err == nil {
			visit(&e)
		}
		return err
	})
}

// reconcile adds and deletes what the differing sets need; it uses them up.
func (b *batch) reconcile(differing contents, next *plan.Plan) {
	if len(differing) == 0 {
		return
	}
	b.r.each(b.ledger, next, func(e *entry) {
		have, ok := differing[e.set]
		if !ok {
			return
		}
		v, present := have[e.element]
		if present && v != e.value {
			b.delete(entry{e.element, v})
		}
		if !present || v != e.value {
			b.add(*e)
		}
		delete(have, e.element)
	})
	for _, have := range differing {
		for e, v := range have {
			b.delete(entry{e, v})
		}
	}
	for f := range b.deleted {
		for set := range b.deleted[f] {
			slices.SortFunc(b.deleted[f][set], func(x, y entry) int { return bytes.Compare(x.appendKey(nil), y.appendKey(nil)) })
		}
	}
}

// unknown gives those objects of a table that are neither fixed nor needed.
func (r *renderer) unknown(l *ledger, have []objectID) (unknown []objectID) {
	for _, id := range have {
		fixed := slices.ContainsFunc(fixedChains, func(c fixedChain) bool { return id.kind == chainObject && c.name == id.name })
		fixed = fixed || id.kind == setObject && (id.name == podSources || id.name == serviceCIDRs)
		fixed = fixed || id.kind != chainObject && slices.ContainsFunc(specs[:], func(s setSpec) bool { return s.name == id.name })
		if _, needed := l.objects[id]; !fixed && !needed {
			unknown = append(unknown, id)
		}
	}
	return unknown
}
