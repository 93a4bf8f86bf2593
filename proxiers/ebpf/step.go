package ebpf

import (
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// step holds the map changes for one plan change.
type step struct {
	// oldFrontends holds the current map elements of frontends that may change, and nextFrontends holds their
	// replacements.
	oldFrontends, nextFrontends map[socketsFrontendKey]socketsFrontend
	// newSlots holds the slots of new sets. staleSlots holds the slots of sets that no frontend refers to any more.
	newSlots                elements[socketsSlotKey, socketsEndpoint]
	staleSlots              []socketsSlotKey
	oldMembers, members     map[socketsMemberKey]uint8
	oldAddresses, addresses map[socketsAddress]uint8
	// removedKeys holds the keys to remove from the map "taken".
	removedKeys []uint32
	// overflow holds the ServicePorts that the maps have no space for.
	overflow []*plan.ServicePort
}

func newStep(n int) *step {
	return &step{
		oldFrontends:  map[socketsFrontendKey]socketsFrontend{},
		nextFrontends: make(map[socketsFrontendKey]socketsFrontend, len(origins())*n),
		oldMembers:    map[socketsMemberKey]uint8{},
		members:       map[socketsMemberKey]uint8{},
	}
}

// mapState records the maps' contents so that a partial step need not read them.
type mapState struct {
	size    size
	records map[portKey]record
	// service and set are the numbers that the backend last assigned to a ServicePort and to a set.
	service, set uint32
	// frontends, slots and members count the elements in the maps of the same names, including elements that maintain
	// has yet to delete.
	frontends, slots, members int
	// overflow counts the ServicePorts that the maps have no space for.
	overflow int
}

// newMapState returns a mapState that already counts the self-test's elements.
func newMapState(s size) *mapState {
	return &mapState{
		size: s, records: map[portKey]record{},
		frontends: selfTestElements, slots: selfTestElements, members: selfTestElements,
	}
}

// partialStep returns the step for a change. The cost depends only on the size of the change.
func (b *mapState) partialStep(change proxiers.Change) *step {
	st := newStep(len(change.Changed))
	for _, svc := range change.Changed {
		b.replace(st, change.Prev.Find(svc.Name, svc.Family), svc)
	}
	for _, svc := range change.Removed {
		b.replace(st, svc, nil)
	}
	if change.Prev.Node != change.Next.Node {
		st.oldAddresses, st.addresses = addressPurposes(change.Prev.Node), addressPurposes(change.Next.Node)
	}
	return st
}

// replace replaces the ServicePort old with next, which has the same name. Either ServicePort may be nil.
func (b *mapState) replace(st *step, old, next *plan.ServicePort) {
	var was record
	if old != nil {
		was = b.records[keyOf(old)]
		was.eachFrontend(old, func(k socketsFrontendKey, v socketsFrontend) { st.oldFrontends[k] = v; b.frontends-- })
		was.eachMember(old, func(k socketsMemberKey) { st.oldMembers[k] = 0; b.members-- })
		delete(b.records, keyOf(old))
		if was.overflows() {
			b.overflow--
		}
	}
	var now record
	if next != nil && next.Name.Protocol != plan.SCTP {
		now = b.addServicePort(st, next, record{service: was.service, sets: unchangedSets(was, old, next)})
	}
	if now.service == 0 && was.service != 0 {
		for _, f := range old.Frontends {
			st.removedKeys = append(st.removedKeys, takenKey(was.service, f.Kind))
		}
	}
	for pool, set := range was.sets {
		if set == 0 || set == now.sets[pool] {
			continue
		}
		for i := range old.Pools[pool] {
			st.staleSlots = append(st.staleSlots, socketsSlotKey{Set: set, Slot: uint32(i)})
		}
	}
}

// unchangedSets returns the sets of unchanged pools.
func unchangedSets(was record, old, next *plan.ServicePort) (sets [2]uint32) {
	for pool := range sets {
		if old != nil && slices.Equal(old.Pools[pool], next.Pools[pool]) {
			sets[pool] = was.sets[pool]
		}
	}
	return sets
}

// addServicePort adds a ServicePort's elements to the step, assigns new sets to pools without a set, and returns the
// completed record.
func (b *mapState) addServicePort(st *step, svc *plan.ServicePort, r record) record {
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
	r.frontendsOverflow = b.frontends+len(origins())*len(svc.Frontends) > int(b.size.frontends)
	// Replacing all members needs twice the space.
	membersOverflow := svc.Name.Protocol == plan.UDP && b.members+len(svc.Serving) > int(b.size.members/2)
	r.endpointsOverflow = b.slots+needed > int(b.size.slots) || membersOverflow
	if r.overflows() {
		r.sets = [2]uint32{}
		st.overflow = append(st.overflow, svc)
		b.overflow++
	} else {
		b.addSets(st, svc, &r, used)
	}
	r.eachFrontend(svc, func(k socketsFrontendKey, v socketsFrontend) { st.nextFrontends[k] = v; b.frontends++ })
	r.eachMember(svc, func(k socketsMemberKey) { st.members[k] = 0; b.members++ })
	b.records[keyOf(svc)] = r
	return r
}

func (b *mapState) addSets(st *step, svc *plan.ServicePort, r *record, used [2]bool) {
	for pool := range used {
		if !used[pool] || r.sets[pool] != 0 {
			continue
		}
		b.set++
		r.sets[pool] = b.set
		b.slots += len(svc.Pools[pool])
		for i, e := range endpoints(svc.Pools[pool]) {
			st.newSlots.add(socketsSlotKey{Set: b.set, Slot: uint32(i)}, e)
		}
	}
}

// fullStep returns the step that changes the maps from their current contents to the contents that the plan requires.
// An earlier process may have written the current contents.
func (b *mapState) fullStep(have *mapContents, next *plan.Plan) *step {
	st := newStep(len(next.Services))
	st.oldFrontends, st.oldMembers, st.oldAddresses, st.addresses = have.frontends, have.members, have.addresses,
		addressPurposes(next.Node)
	sets := setsOf(have.slots)
	b.restoreNumbers(have, sets)
	adopted, services := map[uint32]bool{selfTestSet(plan.IPv4): true, selfTestSet(plan.IPv6): true}, map[uint32]bool{}
	found := make([]record, len(next.Services))
	for i, svc := range next.Services {
		if svc.Name.Protocol != plan.SCTP {
			found[i] = adopt(svc, have.frontends, sets, adopted, services)
		}
	}
	for k := range have.slots { // stale slots occupy space until they are deleted
		if k.Set <= maxNumber {
			b.slots++
		}
	}
	for i, svc := range next.Services {
		if svc.Name.Protocol != plan.SCTP {
			b.addServicePort(st, svc, found[i])
		}
	}
	addSelfTest(st)
	st.removedKeys = slices.DeleteFunc(have.taken, func(key uint32) bool { return services[takenService(key)] })
	for k := range have.slots {
		if !adopted[k.Set] {
			st.staleSlots = append(st.staleSlots, k)
		}
	}
	return st
}

// restoreNumbers sets b.set and b.service to the highest numbers in the maps.
func (b *mapState) restoreNumbers(have *mapContents, sets map[uint32][]socketsEndpoint) {
	for set := range sets {
		if set <= maxNumber {
			b.set = max(b.set, set)
		}
	}
	for _, f := range have.frontends {
		if f.Service <= maxNumber {
			b.service = max(b.service, f.Service)
		}
	}
	for _, key := range have.taken {
		b.service = max(b.service, takenService(key))
	}
}

// setsOf returns each set's endpoints in slot order, or nil for a set with missing slots.
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

// adopt returns a record with the number and the sets that an earlier process assigned to a ServicePort. The maps
// identify a socket's ServicePort by the number in the ServicePort's record.
func adopt(svc *plan.ServicePort, have map[socketsFrontendKey]socketsFrontend, sets map[uint32][]socketsEndpoint,
	adopted, services map[uint32]bool,
) (r record) {
	used := usedPools(svc)
	for i := range svc.Frontends {
		for _, from := range origins() {
			f, there := have[frontendKey(svc, &svc.Frontends[i], from)]
			if !there || !r.adoptNumber(f.Service, services) {
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

// adoptNumber reports whether number belongs to the ServicePort. The ServicePort adopts the first number that no other
// ServicePort has.
func (r *record) adoptNumber(number uint32, taken map[uint32]bool) bool {
	if number == 0 || number > maxNumber || taken[number] && r.service != number {
		return false
	}
	if r.service == 0 {
		r.service, taken[number] = number, true
	}
	return true
}

// write applies the changes that are safe while nftables still implements the old plan. write adds elements that no
// frontend refers to yet, removes frontends, and marks frontends that the programs must leave to nftables.
func (st *step) write(t *planMaps) error {
	if err := t.slots.put(st.newSlots); err != nil {
		return err
	}
	if err := t.members.put(difference(st.members, st.oldMembers)); err != nil {
		return err
	}
	var gone []socketsFrontendKey
	var leaving elements[socketsFrontendKey, socketsFrontend]
	for k, v := range st.oldFrontends {
		now, stays := st.nextFrontends[k]
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

// switchSets switches frontends to their new sets. The nft tables must already implement the plan.
func (st *step) switchSets(t *planMaps) error {
	for _, err := range []error{
		t.addresses.put(difference(st.addresses, st.oldAddresses)),
		t.frontends.put(difference(st.nextFrontends, st.oldFrontends)),
		t.members.remove(difference(st.oldMembers, st.members).keys),
		t.taken.remove(st.removedKeys),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// losesMembers reports whether sockets may be connected to an endpoint that the step removes.
func (st *step) losesMembers() bool { return len(difference(st.oldMembers, st.members).keys) > 0 }

// difference returns the elements of m whose key is not in the map other, or has a different value there.
func difference[K, V comparable](m, other map[K]V) (out elements[K, V]) {
	for k, v := range m {
		if have, there := other[k]; !there || have != v {
			out.add(k, v)
		}
	}
	return out
}
