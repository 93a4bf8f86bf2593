package nftables

import (
	"time"
)

// ledger counts who needs what several ServicePorts can need. All else follows from the plan.
type ledger struct {
	shared  map[element]int32
	objects map[objectID]int32
	// idle holds objects that nothing needs any more. They are still in the kernel.
	idle map[objectID]idleness
}

// idleness is since when an object is idle, and whether its rules are still there.
type idleness struct {
	since  time.Time
	intact bool
}

func newLedger() *ledger {
	return &ledger{shared: map[element]int32{}, objects: map[objectID]int32{}, idle: map[objectID]idleness{}}
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

// takeObject counts one more user of an object; absent says that it must be written. It is worth
// knowing: a transaction with a rule has the kernel validate the whole table.
func (l *ledger) takeObject(id objectID) (absent bool) {
	l.objects[id]++
	if l.objects[id] > 1 {
		return false
	}
	intact := l.idle[id].intact
	delete(l.idle, id)
	return !intact
}

// dropObject counts one user less, and notes when there is none left.
func (l *ledger) dropObject(id objectID, now time.Time) {
	if l.objects[id]--; l.objects[id] <= 0 {
		delete(l.objects, id)
		l.idle[id] = idleness{now, true}
	}
}
