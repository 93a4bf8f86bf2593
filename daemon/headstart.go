package daemon

import (
	"context"
	"sync"
	"time"

	"edgeway/daemon/source"
)

// maxAhead bounds a headStart: what the API server says may be another thing by now.
const maxAhead = time.Second

// headStart lets the last-known state go into the kernel before the API server is asked for everything anew. To read all that takes
// the processors longer than to plan and to program it, and it is nearly always the same.
type headStart struct {
	limit time.Duration
	over  chan struct{}
	once  sync.Once
}

func newHeadStart() *headStart { return &headStart{limit: maxAhead, over: make(chan struct{})} }

func (h *headStart) end() { h.once.Do(func() { close(h.over) }) }

// wait returns at the end of the headStart, after its limit, or when ctx ends.
func (h *headStart) wait(ctx context.Context) {
	late := time.NewTimer(h.limit)
	defer late.Stop()
	select {
	case <-h.over:
	case <-late.C:
	case <-ctx.Done():
	}
}

// firstObject calls none if a source has come to the end of its objects without having any.
type firstObject struct {
	source.Sink
	none  func()
	found bool
}

// Upsert implements source.Sink.
func (f *firstObject) Upsert(o source.Object) {
	f.found = true
	f.Sink.Upsert(o)
}

// Synced implements source.Sink.
func (f *firstObject) Synced() {
	f.Sink.Synced()
	if !f.found {
		f.none()
	}
}
