package daemon

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// memoryRest is how long after a full sync, and after the last of other ones, the memory that they needed is given back, lists
	// read at the start included. Go alone (1.26) keeps it until a collection that an idle daemon runs every two minutes:
	// 104 MB instead of 40 MB at 10,000 Services.
	memoryRest = 3 * time.Second
	// startPercent is Go's GOGC until the first rest. Nearly all that is read and planned at the start stays, so that a collection
	// for each doubling finds little: a third of the CPU of a start with 10,000 Services went into them.
	startPercent, restPercent = 200, 100
	// minGarbage and an eighth of what is kept are less than it is worth to collect: that takes some milliseconds of CPU.
	minGarbage = 2 << 20
)

// rest gives memory back to the system when the daemon comes to rest.
type rest struct {
	free    func()
	held    func() uint64
	percent func(int) int // sets GOGC

	mu    sync.Mutex
	timer *time.Timer
	// full says that there was a full sync since the last time, and kept what was held then.
	full bool
	kept uint64
}

func newRest() *rest {
	r := &rest{held: heapHeld, percent: debug.SetGCPercent, free: func() {
		debug.FreeOSMemory()
		unmapProgram()
	}}
	if os.Getenv("GOGC") != "" {
		r.percent = func(int) int { return 0 } // who set it knows better
	}
	r.percent(startPercent)
	return r
}

// worked notes a sync.
func (r *rest) worked(full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.timer == nil:
		r.timer = time.AfterFunc(memoryRest, r.begin)
	case !r.full:
		r.timer.Reset(memoryRest)
	}
	r.full = r.full || full
}

// begin frees what it is worth to free. Nobody waits for it.
func (r *rest) begin() {
	used := r.held()
	r.mu.Lock()
	worth := r.full || used > r.kept+max(r.kept/8, minGarbage)
	r.full = false
	r.mu.Unlock()
	if !worth {
		return
	}
	r.percent(restPercent)
	r.free()
	used = r.held()
	r.mu.Lock()
	r.kept = used
	r.mu.Unlock()
}

// heapHeld is the memory of Go's heap that the system does not have back: objects, dead ones included, and room for others. After a
// collection Go (1.26) keeps free room for as much again as there is.
func heapHeld() (sum uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}
