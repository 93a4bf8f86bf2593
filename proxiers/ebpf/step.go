package ebpf

import (
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// step is what a change writes to the maps.
type step struct {
	// old are frontends that the maps have, of those that may change; next are those that they shall have.
	old, next map[socketsFrontendKey]socketsFrontend
	// fresh are the slots of new sets, stale those of sets that nothing leads to any more.
	fresh elements[socketsSlotKey, socketsEndpoint]
	stale []socketsSlotKey
	// oldMembers and members, as frontends.
	oldMembers, members map[socketsMemberKey]uint8
	// oldAddresses and addresses, as frontends.
	oldAddresses, addresses map[socketsAddress]uint8
	// ended are the numbers of ServicePorts that are gone.
	ended []uint32
	// noRoom are ServicePorts that the maps are too small for.
	noRoom []*plan.ServicePort
}

// newStep has room for so many ServicePorts.
func newStep(n int) *step {
	return &step{
		old: map[socketsFrontendKey]socketsFrontend{}, next: make(map[socketsFrontendKey]socketsFrontend,
			len(origins())*n),
		oldMembers: map[socketsMemberKey]uint8{}, members: map[socketsMemberKey]uint8{},
	}
}

// book knows what is where in the maps.
type book struct {
	size    size
	records map[portKey]record
	// service and set are the last numbers that were given.
	service, set uint32
	// frontends, slots and members count elements, those included that are still to be deleted.
	frontends, slots, members int
	// left counts ServicePorts that the maps are too small for.
	left int
}

// newBook has what the probe takes in it already.
func newBook(s size) *book {
	return &book{size: s, records: map[portKey]record{}, frontends: probes, slots: probes, members: probes}
}

// partial makes the step of a change, in proportion to what changed.
func (b *book) partial(change proxiers.Change) *step {
	st := newStep(len(change.Changed))
	for _, svc := range change.Changed {
		b.replace(st, change.Prev.Find(svc.Name, svc.Family), svc)
	}
	for _, svc := range change.Removed {
		b.replace(st, svc, nil)
	}
	if change.Prev.Node != change.Next.Node {
		st.oldAddresses, st.addresses = addresses(change.Prev.Node), addresses(change.Next.Node)
	}
	return st
}

// replace writes one ServicePort in place of another one of its name; either may be nil.
func (b *book) replace(st *step, old, next *plan.ServicePort) {
	var was record
	if old != nil {
		was = b.records[keyOf(old)]
		was.frontends(old, func(k socketsFrontendKey, v socketsFrontend) { st.old[k] = v; b.frontends-- })
		was.members(old, func(k socketsMemberKey) { st.oldMembers[k] = 0; b.members-- })
		delete(b.records, keyOf(old))
		if was.full() {
			b.left--
		}
	}
	var now record
	if next != nil && next.Name.Protocol != plan.SCTP {
		now = b.enter(st, next, record{service: was.service, sets: kept(was, old, next)})
	}
	if now.service == 0 && was.service != 0 {
		st.ended = append(st.ended, was.service)
	}
	for pool, set := range was.sets {
		if set == 0 || set == now.sets[pool] {
			continue
		}
		for i := range old.Pools[pool] {
			st.stale = append(st.stale, socketsSlotKey{Set: set, Slot: uint32(i)})
		}
	}
}

// kept gives the sets that stay as they are.
func kept(was record, old, next *plan.ServicePort) (sets [2]uint32) {
	for pool := range sets {
		if old != nil && slices.Equal(old.Pools[pool], next.Pools[pool]) {
			sets[pool] = was.sets[pool]
		}
	}
	return sets
}

// enter completes the record of a ServicePort, with sets for the pools that have none, and adds its elements.
func (b *book) enter(st *step, svc *plan.ServicePort, r record) record {
	if r.service == 0 {
		b.service++
		r.service = b.service
	}
	needed, used := 0, usedPools(svc)
	for pool := range used {
		if !used[pool] {
			r.sets[pool] = 0
		} else if r.sets[pool] == 0 {
			needed += len(svc.Pools[pool])
		}
	}
	r.absent = b.frontends+len(origins())*len(svc.Frontends) > int(b.size.frontends)
	r.noRoom = b.slots+needed > int(b.size.slots) || svc.Name.Protocol == plan.UDP && b.members+len(svc.Serving) > int(b.size.members/2) // as many leave when all are replaced
	if r.full() {
		r.sets = [2]uint32{}
		st.noRoom = append(st.noRoom, svc)
		b.left++
	} else {
		b.addSets(st, svc, &r, used)
	}
	r.frontends(svc, func(k socketsFrontendKey, v socketsFrontend) { st.next[k] = v; b.frontends++ })
	r.members(svc, func(k socketsMemberKey) { st.members[k] = 0; b.members++ })
	b.records[keyOf(svc)] = r
	return r
}

// addSets gives a set to each pool that needs one and has none.
func (b *book) addSets(st *step, svc *plan.ServicePort, r *record, used [2]bool) {
	for pool := range used {
		if !used[pool] || r.sets[pool] != 0 {
			continue
		}
		b.set++
		r.sets[pool] = b.set
		b.slots += len(svc.Pools[pool])
		for i, e := range endpoints(svc.Pools[pool]) {
			st.fresh.add(socketsSlotKey{Set: b.set, Slot: uint32(i)}, e)
		}
	}
}

// full makes the step from what the maps hold, which may be of an earlier process: what is right stays as it is.
func (b *book) full(have *held, next *plan.Plan) *step {
	st := newStep(len(next.Services))
	st.old, st.oldMembers, st.oldAddresses, st.addresses = have.frontends, have.members, have.addresses,
		addresses(next.Node)
	sets := setsOf(have.slots)
	b.resume(have, sets)
	adopted, services := map[uint32]bool{probeSet(plan.IPv4): true, probeSet(plan.IPv6): true}, map[uint32]bool{}
	found := make([]record, len(next.Services))
	for i, svc := range next.Services {
		if svc.Name.Protocol != plan.SCTP {
			found[i] = adopt(svc, have.frontends, sets, adopted, services)
		}
	}
	for k := range have.slots { // what is stale takes room until it is deleted
		if k.Set <= lastSet {
			b.slots++
		}
	}
	for i, svc := range next.Services {
		if svc.Name.Protocol != plan.SCTP {
			b.enter(st, svc, found[i])
		}
	}
	probe(st)
	st.ended = slices.DeleteFunc(have.taken, func(n uint32) bool { return services[n] })
	for k := range have.slots {
		if !adopted[k.Set] {
			st.stale = append(st.stale, k)
		}
	}
	return st
}

// resume has new numbers come after those that the maps hold.
func (b *book) resume(have *held, sets map[uint32][]socketsEndpoint) {
	for set := range sets {
		if set <= lastSet {
			b.set = max(b.set, set)
		}
	}
	for _, f := range have.frontends {
		if f.Service <= lastSet {
			b.service = max(b.service, f.Service)
		}
	}
	for _, n := range have.taken {
		b.service = max(b.service, n)
	}
}

// setsOf gives the sets whole, each as it is chosen from. One with a gap is not there.
func setsOf(slots map[socketsSlotKey]socketsEndpoint) map[uint32][]socketsEndpoint {
	counts := map[uint32]int{}
	for k := range slots {
		counts[k.Set]++
	}
	sets := make(map[uint32][]socketsEndpoint, len(counts))
	for set, n := range counts {
		sets[set] = make([]socketsEndpoint, n)
	}
	for k, e := range slots {
		if list := sets[k.Set]; int(k.Slot) < len(list) {
			list[k.Slot] = e
		} else {
			sets[k.Set] = nil
		}
	}
	return sets
}

// adopt gives a ServicePort what an earlier process gave it: its number, by which sockets are known, and sets that are
// as they should be.
func adopt(svc *plan.ServicePort, have map[socketsFrontendKey]socketsFrontend, sets map[uint32][]socketsEndpoint,
	adopted, services map[uint32]bool,
) (r record) {
	used := usedPools(svc)
	for i := range svc.Frontends {
		for _, from := range origins() {
			f, there := have[frontendKey(svc, &svc.Frontends[i], from)]
			if !there || !r.own(f.Service, services) {
				continue
			}
			pool := svc.Frontends[i].Routes[from].Pool
			if used[pool] && r.sets[pool] == 0 && !adopted[f.Set] && f.Set != 0 && f.Flags&left == 0 &&
				slices.Equal(sets[f.Set], endpoints(svc.Pools[pool])) {
				r.sets[pool] = f.Set
				adopted[f.Set] = true
			}
		}
	}
	return r
}

// own says whether a frontend with this number is the ServicePort's, which takes the number of the first if no other
// one has it.
func (r *record) own(number uint32, taken map[uint32]bool) bool {
	if number == 0 || number > lastSet || taken[number] && r.service != number {
		return false
	}
	if r.service == 0 {
		r.service, taken[number] = number, true
	}
	return true
}

// write brings the maps as far as they may be while nftables is still as it was: nothing leads to what is added, and
// what nftables is to decide is left to it.
func (st *step) write(t *tables) error {
	if err := t.slots.put(st.fresh); err != nil {
		return err
	}
	if err := t.members.put(without(st.members, st.oldMembers)); err != nil {
		return err
	}
	var gone []socketsFrontendKey
	var leaving elements[socketsFrontendKey, socketsFrontend]
	for k, v := range st.old {
		now, stays := st.next[k]
		switch {
		case !stays:
			gone = append(gone, k)
		case now != v && now.Flags&left != 0:
			leaving.add(k, now)
		}
	}
	var none []socketsAddress
	var less elements[socketsAddress, uint8]
	for k, v := range st.oldAddresses {
		now, stays := st.addresses[k]
		switch {
		case !stays:
			none = append(none, k)
		case now&v != v:
			less.add(k, now&v)
		}
	}
	for _, err := range []error{
		t.frontends.remove(gone), t.frontends.put(leaving), t.addresses.remove(none), t.addresses.put(less),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// lead has frontends lead to their sets, once nftables has the same.
func (st *step) lead(t *tables) error {
	for _, err := range []error{
		t.addresses.put(without(st.addresses, st.oldAddresses)),
		t.frontends.put(without(st.next, st.old)),
		t.members.remove(without(st.oldMembers, st.members).keys),
		t.taken.remove(st.ended),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// losesMembers says that sockets may have an endpoint that is gone.
func (st *step) losesMembers() bool { return len(without(st.oldMembers, st.members).keys) > 0 }

// without gives the elements that another map lacks, or has with another value.
func without[K, V comparable](m, other map[K]V) (out elements[K, V]) {
	for k, v := range m {
		if have, there := other[k]; !there || have != v {
			out.add(k, v)
		}
	}
	return out
}
