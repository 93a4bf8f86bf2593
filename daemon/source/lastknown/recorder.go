package lastknown

import (
	"slices"
	"sync"

	"edgeway/daemon/source"
)

// recorder passes on what a source says and notes what changed.
type recorder struct {
	store *Store
	sink  source.Sink

	mu     sync.Mutex
	synced bool
	// changed is what was not committed yet, saved what is to be written; nil: deleted. They share the
	// objects with the sink. While whole is set nothing is noted: all there is will be written.
	changed, savable map[source.Key]source.Object
	whole            bool
	committed        bool
	held             []source.Holding
	heldChanged      bool
}

// pending is what is to be written: changes, and with heldChanged who holds what, or, with whole set, all there is.
type pending struct {
	changed     map[source.Key]source.Object
	held        []source.Holding
	heldChanged bool
	whole       bool
}

// Tee gives a sink that passes everything on to this one and records it. A later Tee replaces an
// earlier one.
func (s *Store) Tee(sink source.Sink) source.Sink {
	r := &recorder{store: s, sink: sink, whole: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec = r
	return r
}

// Commit says that the host agrees with what was recorded: it may be saved. What was recorded before
// the source had listed everything is not saved. held is what several Services claim, sorted, for Held after the next
// start; the caller does not write to it any more.
func (s *Store) Commit(held []source.Holding) {
	s.mu.Lock()
	r := s.rec
	s.mu.Unlock()
	if r != nil && r.commit(held) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// commit reports whether there is something to write.
func (r *recorder) commit(held []source.Holding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.synced {
		return false
	}
	r.committed = true
	if !slices.Equal(r.held, held) {
		r.held, r.heldChanged = held, true
	}
	if r.whole {
		return true
	}
	if len(r.changed) == 0 {
		return r.heldChanged
	}
	if r.savable == nil {
		r.savable = make(map[source.Key]source.Object)
	}
	for key, obj := range r.changed {
		r.savable[key] = obj
	}
	r.changed = nil
	return true
}

func (r *recorder) note(key source.Key, obj source.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.whole || key.Kind == source.KindDocument { // a fault of now
		return
	}
	if r.changed == nil {
		r.changed = make(map[source.Key]source.Object)
	}
	r.changed[key] = obj
}

// take gives what is to be written. ok is false before the first commit.
func (r *recorder) take() (p pending, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.committed {
		return pending{}, false
	}
	p = pending{r.savable, r.held, r.heldChanged, r.whole}
	r.savable, r.heldChanged, r.whole = nil, false, false
	return p, true
}

// again makes the next write a whole one.
func (r *recorder) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole, r.changed, r.savable = true, nil, nil
}

// Upsert implements source.Sink.
func (r *recorder) Upsert(obj source.Object) {
	r.sink.Upsert(obj)
	r.note(obj.Key(), obj)
}

// Delete implements source.Sink.
func (r *recorder) Delete(key source.Key) {
	r.sink.Delete(key)
	r.note(key, nil)
}

// Synced implements source.Sink.
func (r *recorder) Synced() {
	r.mu.Lock()
	r.synced = true // before anybody can commit what the sink makes of it
	r.mu.Unlock()
	r.sink.Synced()
}
