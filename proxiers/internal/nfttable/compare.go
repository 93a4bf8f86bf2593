package nfttable

import (
	"bytes"
	"hash/maphash"
	"slices"

	"edgeway/proxiers/plan"
)

// contents are the entries of some sets as the kernel has them, by set and key. An element's key
// names its family too.
type contents map[SetID]map[Element]Value

// checksum is the number of elements of a set and a sum over them that does not depend on their order.
type checksum struct {
	count int
	sum   uint64
}

// summer adds entries to checksums, which are indexed by family, then set.
type summer struct {
	sets []Set
	seed maphash.Seed
	buf  []byte
}

func (s *summer) checksums() (sums [2][]checksum) {
	for f := range sums {
		sums[f] = make([]checksum, len(s.sets))
	}
	return sums
}

func (s *summer) add(sums *[2][]checksum, e *Entry) {
	c := &sums[familyIndex(e.Family)][e.Set]
	s.buf = e.appendValue(append(s.sets[e.Set].appendKey(s.buf[:0], &e.Element), ' '))
	c.count++
	c.sum += maphash.Bytes(s.seed, s.buf)
}

// each visits every entry that the plan wants; the references are the plan's. Entries are not held in
// memory: there are several for each endpoint.
func (r *renderer) each(refs *references, next *plan.Plan, visit func(*Entry)) {
	r.needs(refs, next, func(n *Needs) {
		for i := range n.entries {
			visit(&n.entries[i])
		}
	})
	for e := range refs.shared {
		visit(&Entry{Element: e})
	}
	for id := range refs.numbers {
		e := refs.numberEntry(r.Numbers, id)
		visit(&e)
	}
	for _, e := range r.Node(next.Node) {
		visit(&e)
	}
}

// compare gives the contents of the kernel's sets that differ from the plan. Most often none does, and
// then no set is held in memory.
func (r *renderer) compare(c *reader, refs *references, next *plan.Plan) (contents, error) {
	s := summer{sets: r.Sets, seed: maphash.MakeSeed()}
	want, have := s.checksums(), s.checksums()
	r.each(refs, next, func(e *Entry) { s.add(&want, e) })
	differing := contents{}
	names := map[string]string{}
	for _, f := range r.families {
		for i := range r.Sets {
			set := SetID(i)
			if err := r.read(c, f, set, names, func(e *Entry) { s.add(&have, e) }); err != nil {
				return nil, err
			}
			if have[familyIndex(f)][set] != want[familyIndex(f)][set] && differing[set] == nil {
				differing[set] = map[Element]Value{}
			}
		}
	}
	for set, have := range differing {
		for _, f := range r.families {
			if err := r.read(c, f, set, names, func(e *Entry) { have[e.Element] = e.Value }); err != nil {
				return nil, err
			}
		}
	}
	return differing, nil
}

func (r *renderer) read(c *reader, f plan.Family, id SetID, names map[string]string, visit func(*Entry)) error {
	set := &r.Sets[id]
	return c.elements(f, r.Table, set.Name, func(raw rawElement) error {
		e, err := set.decode(f, id, raw, names)
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
	b.r.each(b.refs, next, func(e *Entry) {
		have, ok := differing[e.Set]
		if !ok {
			return
		}
		v, present := have[e.Element]
		if present && v != e.Value {
			b.delete(Entry{e.Element, v})
		}
		if !present || v != e.Value {
			b.add(*e)
		}
		delete(have, e.Element)
	})
	for _, have := range differing {
		for e, v := range have {
			b.delete(Entry{e, v})
		}
	}
	for f := range b.deleted {
		for i, list := range b.deleted[f] {
			set := &b.r.Sets[i]
			slices.SortFunc(list, func(x, y Entry) int {
				return bytes.Compare(set.appendKey(nil, &x.Element), set.appendKey(nil, &y.Element))
			})
		}
	}
}

// unknown gives those objects of a table that are neither fixed nor needed.
func (r *renderer) unknown(refs *references, have []ObjectID) (unknown []ObjectID) {
	for _, id := range have {
		fixed := false
		switch id.Kind {
		case ChainObject:
			fixed = slices.ContainsFunc(r.Chains, func(c Chain) bool { return c.Name == id.Name })
		case setObject:
			fixed = slices.ContainsFunc(r.Ranges, func(s Range) bool { return s.Name == id.Name })
		}
		fixed = fixed || id.Kind != ChainObject && slices.ContainsFunc(r.Sets, func(s Set) bool { return s.Name == id.Name })
		if _, needed := refs.objects[id]; !fixed && !needed {
			unknown = append(unknown, id)
		}
	}
	return unknown
}
