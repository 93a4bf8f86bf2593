package nftables

import (
	"time"
)

// ledger counts who needs what several ServicePorts can need. All else follows from the plan.
type ledger struct {
	shared  map[element]int32
	objects map[objectID]int32
	// idle holds objects that nothing needs any more and since when. They are still in the kernel.
	idle map[objectID]time.Time
}

func newLedger() *ledger {
	return &ledger{shared: map[element]int32{}, objects: map[objectID]int32{}, idle: map[objectID]time.Time{}}
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

// takeObject counts one more user of an object; absent says that it is not in the kernel.
func (l *ledger) takeObject(id objectID) (absent bool) {
	l.objects[id]++
	if l.objects[id] > 1 {
		return false
	}
	_, present := l.idle[id]
	delete(l.idle, id)
	return !present
}

// dropObject counts one user less, and notes when there is none left.
func (l *ledger) dropObject(id objectID, now time.Time) {
	if l.objects[id]--; l.objects[id] <= 0 {
		delete(l.objects, id)
		l.idle[id] = now
	}
}
