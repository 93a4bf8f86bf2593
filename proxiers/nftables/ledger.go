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

// takeObject counts one more user of an object; first says that there was none. An idle object must be
// written again, because the rules of an idle chain may be gone.
func (l *ledger) takeObject(id objectID) (first bool) {
	l.objects[id]++
	delete(l.idle, id)
	return l.objects[id] == 1
}

// dropObject counts one user less, and notes when there is none left.
func (l *ledger) dropObject(id objectID, now time.Time) {
	if l.objects[id]--; l.objects[id] <= 0 {
		delete(l.objects, id)
		l.idle[id] = now
	}
}
