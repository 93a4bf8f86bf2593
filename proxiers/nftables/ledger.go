package nftables

import (
	"hash/fnv"
	"strconv"
	"time"

	"edgeway/proxiers/plan"
)

// classID is the number of a class chain in the maps of frontends. nft shows it as "major:minor" in
// hexadecimal, because it has the type of a packet's priority.
type classID uint32

func (c classID) append(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(c>>16), 16)
	b = append(b, ':')
	return strconv.AppendUint(b, uint64(c&0xffff), 16)
}

// ledger counts who needs what several ServicePorts can need. All else follows from the plan.
type ledger struct {
	shared  map[element]int32
	objects map[objectID]int32
	// classes numbers the class chains in the kernel, idle ones included.
	classes map[objectID]classID
	taken   map[familyClass]bool
	// idle holds objects that nothing needs and nothing leads to any more. They are still in the kernel.
	idle map[objectID]idleness
}

// familyClass is a number in one table.
type familyClass struct {
	family plan.Family
	class  classID
}

// idleness is since when an object is idle, and whether its rules are still there.
type idleness struct {
	since  time.Time
	intact bool
}

func newLedger() *ledger {
	return &ledger{
		shared: map[element]int32{}, objects: map[objectID]int32{}, idle: map[objectID]idleness{},
		classes: map[objectID]classID{}, taken: map[familyClass]bool{},
	}
}

// class gives the number of a class chain. It follows from the name, so that it is the same after a
// restart, unless two names happen to lead to one number.
func (l *ledger) class(id objectID) classID {
	number, ok := l.classes[id]
	if ok {
		return number
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id.name))
	number = classID(h.Sum32())
	for number == 0 || l.taken[familyClass{id.family, number}] {
		number++
	}
	l.classes[id], l.taken[familyClass{id.family, number}] = number, true
	return number
}

// classEntry leads from the number of a class to its chain.
func (l *ledger) classEntry(id objectID) entry {
	return entry{element{family: id.family, set: classes, class: l.class(id)}, value{chain: id.name}}
}

// forget ends the life of an object that is gone from the kernel.
func (l *ledger) forget(id objectID) {
	delete(l.idle, id)
	delete(l.taken, familyClass{id.family, l.classes[id]})
	delete(l.classes, id)
}

// take counts one more user of an element; first says that there was none.
func (l *ledger) take(e element) (first bool) {
	l.shared[e]++
	return l.shared[e] == 1
}

// drop counts one user less; last says that there is none left.
func (l *ledger) drop(e element) (last bool) {
	if l.shared[e]--; l.shared[e] > 0 {
		return false
	}
	delete(l.shared, e)
	return true
}

// takeObject counts one more user of an object. first says that there was none, and absent that it must
// be written too.
func (l *ledger) takeObject(id objectID) (first, absent bool) {
	l.objects[id]++
	if l.objects[id] > 1 {
		return false, false
	}
	intact := l.idle[id].intact
	delete(l.idle, id)
	return true, !intact
}

// dropObject counts one user less; last says that there is none left.
func (l *ledger) dropObject(id objectID, now time.Time) (last bool) {
	if l.objects[id]--; l.objects[id] > 0 {
		return false
	}
	delete(l.objects, id)
	l.idle[id] = idleness{now, true}
	return true
}
