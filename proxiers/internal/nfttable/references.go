package nfttable

import (
	"hash/fnv"
	"time"

	"edgeway/proxiers/plan"
)

// references counts what needs the elements and objects that several ServicePorts can need. All else follows from
// the plan.
type references struct {
	shared  map[Element]int32
	objects map[ObjectID]int32
	// numbers are those of the chains in the kernel, idle ones included.
	numbers map[ObjectID]ChainNumber
	taken   map[familyNumber]bool
	// idle holds objects that nothing needs and nothing leads to any more. They are still in the kernel.
	idle map[ObjectID]idleness
}

// familyNumber is a number in one table.
type familyNumber struct {
	family plan.Family
	number ChainNumber
}

// idleness is since when an object is idle, and whether its rules are still there.
type idleness struct {
	since  time.Time
	intact bool
}

func newReferences() *references {
	return &references{
		shared: map[Element]int32{}, objects: map[ObjectID]int32{}, idle: map[ObjectID]idleness{},
		numbers: map[ObjectID]ChainNumber{}, taken: map[familyNumber]bool{},
	}
}

// number gives the number of a chain. It follows from the name, so that it is the same after a restart, unless
// two names happen to lead to one number.
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

// numberEntry leads from the number of a chain to the chain.
func (r *references) numberEntry(set SetID, id ObjectID) Entry {
	return Entry{Element{Family: id.Family, Set: set, Number: r.number(id)}, Value{Chain: id.Name}}
}

// forget ends the life of an object that is gone from the kernel.
func (r *references) forget(id ObjectID) {
	delete(r.idle, id)
	delete(r.taken, familyNumber{id.Family, r.numbers[id]})
	delete(r.numbers, id)
}

// take counts one more need of an element; first says that there was none.
func (r *references) take(e Element) (first bool) {
	r.shared[e]++
	return r.shared[e] == 1
}

// drop counts one need less; last says that there is none left.
func (r *references) drop(e Element) (last bool) {
	if r.shared[e]--; r.shared[e] > 0 {
		return false
	}
	delete(r.shared, e)
	return true
}

// takeObject counts one more need of an object. first says that there was none, and absent that it must be
// written too.
func (r *references) takeObject(id ObjectID) (first, absent bool) {
	r.objects[id]++
	if r.objects[id] > 1 {
		return false, false
	}
	intact := r.idle[id].intact
	delete(r.idle, id)
	return true, !intact
}

// dropObject counts one need less; last says that there is none left.
func (r *references) dropObject(id ObjectID, now time.Time) (last bool) {
	if r.objects[id]--; r.objects[id] > 0 {
		return false
	}
	delete(r.objects, id)
	r.idle[id] = idleness{now, true}
	return true
}

// idleBefore gives the objects that have been idle since then.
func (r *references) idleBefore(t time.Time) (objects []ObjectID) {
	for id, idle := range r.idle {
		if !idle.since.After(t) {
			objects = append(objects, id)
		}
	}
	return objects
}
