package nfttable

import (
	"hash/fnv"
	"time"

	"edgeway/proxiers/plan"
)

// references counts the references to elements and objects that several ServicePorts can need.
type references struct {
	shared  map[Element]int32
	objects map[ObjectID]int32
	// numbers holds the ChainNumber of each chain in the kernel, including idle chains.
	numbers map[ObjectID]ChainNumber
	taken   map[familyNumber]bool
	// idleObjects holds the objects in the kernel that no ServicePort needs and no element refers to.
	idleObjects map[ObjectID]idleness
}

type familyNumber struct {
	family plan.Family
	number ChainNumber
}

// idleness records when an object became idle. intact reports whether the kernel still has the object's rules.
type idleness struct {
	since  time.Time
	intact bool
}

func newReferences() *references {
	return &references{
		shared: map[Element]int32{}, objects: map[ObjectID]int32{}, idleObjects: map[ObjectID]idleness{},
		numbers: map[ObjectID]ChainNumber{}, taken: map[familyNumber]bool{},
	}
}

// number derives a chain's number from the chain's name. Unless the numbers of two names collide, the chain has the
// same number after a restart.
func (r *references) number(id ObjectID) ChainNumber {
	number, ok := r.numbers[id]
	if ok {
		return number
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id.Name))
	number = ChainNumber(h.Sum32())
	for number == 0 || r.taken[familyNumber{id.Family, number}] {
		number++
	}
	r.numbers[id], r.taken[familyNumber{id.Family, number}] = number, true
	return number
}

func (r *references) numberEntry(set SetID, id ObjectID) Entry {
	return Entry{Element{Family: id.Family, Set: set, Number: r.number(id)}, Value{Chain: id.Name}}
}

// forget removes an object that Edgeway has deleted from the kernel.
func (r *references) forget(id ObjectID) {
	delete(r.idleObjects, id)
	delete(r.taken, familyNumber{id.Family, r.numbers[id]})
	delete(r.numbers, id)
}

func (r *references) take(e Element) (first bool) {
	r.shared[e]++
	return r.shared[e] == 1
}

func (r *references) drop(e Element) (last bool) {
	if r.shared[e]--; r.shared[e] > 0 {
		return false
	}
	delete(r.shared, e)
	return true
}

// takeObject adds a reference to an object. first reports whether no other reference exists, and absent reports whether
// the caller must also write the object to the kernel.
func (r *references) takeObject(id ObjectID) (first, absent bool) {
	r.objects[id]++
	if r.objects[id] > 1 {
		return false, false
	}
	intact := r.idleObjects[id].intact
	delete(r.idleObjects, id)
	return true, !intact
}

func (r *references) dropObject(id ObjectID, now time.Time) (last bool) {
	if r.objects[id]--; r.objects[id] > 0 {
		return false
	}
	delete(r.objects, id)
	r.idleObjects[id] = idleness{now, true}
	return true
}

// objectsIdleSince returns the objects that became idle at t or earlier.
func (r *references) objectsIdleSince(t time.Time) (objects []ObjectID) {
	for id, idle := range r.idleObjects {
		if !idle.since.After(t) {
			objects = append(objects, id)
		}
	}
	return objects
}
