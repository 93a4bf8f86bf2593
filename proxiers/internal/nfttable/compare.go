package nfttable

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"edgeway/proxiers/plan"
)

// contents holds the kernel's entries in the sets that differ from the plan, by set and key. An element's key includes
// the family.
type contents map[SetID]map[Element]Value

// checksum holds the number of elements in a set and the sum of the elements' hashes, which does not depend on their
// order.
type checksum struct {
	count int
	sum   uint64
}

// checksummer adds entries to checksums, which are indexed by family and set.
type checksummer struct {
	sets []Set
	seed maphash.Seed
	buf  []byte
	// names holds the strings that decode has interned.
	names map[string]string
}

func (s *checksummer) checksums() (sums [2][]checksum) {
	for f := range sums {
		sums[f] = make([]checksum, len(s.sets))
	}
	return sums
}

func (s *checksummer) add(sums *[2][]checksum, e *Entry) {
	s.addTo(&sums[familyIndex(e.Family)][e.Set], e)
}

func (s *checksummer) addTo(c *checksum, e *Entry) {
	s.buf = s.sets[e.Set].appendElement(s.buf[:0], e, true)
	c.count++
	c.sum += maphash.Bytes(s.seed, s.buf)
}

// eachEntry calls visit with the entries that the plan needs: the chain numbers, each ServicePort's own entries, the
// shared elements, and the host's entries, in this order. refs must hold the plan's references. A list of all entries
// would need a lot of memory, because each endpoint has several entries.
func (r *renderer) eachEntry(refs *references, next *plan.Plan, visit func([]Entry)) {
	var one [1]Entry
	for id := range refs.numbers {
		one[0] = refs.numberEntry(r.Numbers, id)
		visit(one[:])
	}
	r.eachNeeds(refs, next, func(n *Needs) { visit(n.entries) })
	for e := range refs.shared {
		one[0] = Entry{Element: e}
		visit(one[:])
	}
	visit(r.NodeEntries(next.Node))
}

// compare returns the kernel's entries in each set that differs from the plan, and keeps no other entries in memory.
// Usually, no set differs.
func (r *renderer) compare(c *reader, refs *references, next *plan.Plan) (contents, error) {
	s := checksummer{sets: r.Sets, seed: maphash.MakeSeed(), names: map[string]string{}}
	want, have := s.checksums(), s.checksums()
	r.eachEntry(refs, next, func(list []Entry) {
		for i := range list {
			s.add(&want, &list[i])
		}
	})
	differing := contents{}
	for _, f := range r.families {
		for i := range r.Sets {
			set := SetID(i)
			if err := r.read(c, f, set, s.names, func(e *Entry) { s.add(&have, e) }); err != nil {
				return nil, err
			}
			if have[familyIndex(f)][set] != want[familyIndex(f)][set] {
				differing[set] = map[Element]Value{}
			}
		}
	}
	for set, found := range differing {
		for _, f := range r.families {
			ofFamily, err := r.reread(c, &s, f, set, have[familyIndex(f)][set])
			if err != nil {
				return nil, err
			}
			maps.Copy(found, ofFamily)
		}
	}
	return differing, nil
}

func (r *renderer) read(c *reader, f plan.Family, id SetID, names map[string]string, visit func(*Entry)) error {
	set := &r.Sets[id]
	return c.dumpElements(f, r.Table, set.Name, func(raw rawElement) error {
		e, err := set.decode(f, id, raw, names)
		if err == nil {
			visit(&e)
		}
		return err
	})
}

// reconcile adds and deletes elements so that the differing sets agree with the plan, and modifies the maps in
// differing. reconcile adds ranges last, because the kernel (6.18) rejects a range that overlaps another range.
func (b *batch) reconcile(differing contents, next *plan.Plan) (err error) {
	if len(differing) == 0 {
		return nil
	}
	var ranges []Entry
	b.r.eachEntry(b.refs, next, func(list []Entry) {
		if err != nil {
			return
		}
		for i := range list {
			e := &list[i]
			if have, ok := differing[e.Set]; ok && b.reconcileElement(e, have) {
				ranges = append(ranges, *e)
			}
		}
		if b.size >= 2*b.r.chunkSize {
			err = b.flushChunk()
		}
	})
	for _, leads := range []bool{true, false} {
		for set := range b.r.Sets {
			if err == nil && b.r.Sets[set].LeadsToLookup == leads {
				err = b.deleteAll(differing[SetID(set)])
			}
		}
	}
	for i := range ranges {
		if err == nil && b.size >= 2*b.r.chunkSize {
			err = b.flushChunk()
		}
		b.add(ranges[i])
	}
	return err
}

// reconcileElement adds an element to its set unless the kernel already has the element with the same value, and
// deletes the element from have, which holds the kernel's entries in the set. later is true if the element is a range,
// which the caller must add later.
func (b *batch) reconcileElement(e *Entry, have map[Element]Value) (later bool) {
	v, present := have[e.Element]
	delete(have, e.Element)
	switch {
	case present && v == e.Value:
		return false
	case present:
		b.delete(Entry{e.Element, v})
	}
	if b.r.Sets[e.Set].has(PeerPrefix) {
		return true
	}
	b.add(*e)
	return false
}

// deleteAll deletes elements in key order.
func (b *batch) deleteAll(have map[Element]Value) error {
	type keyed struct {
		key   string
		entry Entry
	}
	list := make([]keyed, 0, len(have))
	for e, v := range have {
		list = append(list, keyed{string(b.r.Sets[e.Set].appendKey(nil, &e)), Entry{e, v}})
	}
	slices.SortFunc(list, func(x, y keyed) int { return strings.Compare(x.key, y.key) })
	for i := range list {
		b.delete(list[i].entry)
		if b.size >= 2*b.r.chunkSize {
			if err := b.flushChunk(); err != nil {
				return err
			}
		}
	}
	return nil
}

// unknownObjects returns the objects in a table that are neither part of the Schema nor needed for the plan.
func (r *renderer) unknownObjects(refs *references, have []ObjectID) (unknown []ObjectID) {
	for _, id := range have {
		fixed := false
		switch id.Kind {
		case ChainObject:
			fixed = slices.ContainsFunc(r.Chains, func(c Chain) bool { return c.Name == id.Name })
		case setObject:
			fixed = slices.ContainsFunc(r.Ranges, func(s Range) bool { return s.Name == id.Name })
		}
		fixed = fixed || id.Kind != ChainObject &&
			slices.ContainsFunc(r.Sets, func(s Set) bool { return s.Name == id.Name })
		if _, needed := refs.objects[id]; !fixed && !needed {
			unknown = append(unknown, id)
		}
	}
	return unknown
}
