package lastknown

import (
	"maps"
	"slices"
	"sync"

	"edgeway/daemon/source"
)

// recorder passes the objects of a source to a sink and stores the committed objects for the next snapshot.
type recorder struct {
	sink source.Sink

	mu     sync.Mutex
	synced bool
	// recent holds the changes since the last commit, with nil for each deleted object. recent and committed share
	// their objects with the sink.
	recent    map[source.Key]source.Object
	committed map[source.Key]source.Object // nil before the first commit
	held      []source.Holding
	dirty     bool // whether committed or held differs from the snapshot
}

// Tee returns a sink that records the objects and passes them on to the given sink. A second call of Tee replaces the
// first sink.
func (s *Store) Tee(sink source.Sink) source.Sink {
	r := &recorder{sink: sink, recent: map[source.Key]source.Object{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec = r
	return r
}

// Commit tells the Store that the host is in sync with the recorded objects, so that the Store can save the objects.
// Commit has no effect until the source has listed all objects. held lists the sorted holdings that Held returns after
// a restart. The caller must not modify held afterwards.
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

// commit commits the recorded changes and reports whether the Store must write a snapshot.
func (r *recorder) commit(held []source.Holding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.synced {
		return false
	}
	if r.committed == nil {
		r.committed, r.dirty = map[source.Key]source.Object{}, true
	}
	if !slices.Equal(r.held, held) {
		r.held, r.dirty = held, true
	}
	for key, obj := range r.recent {
		if obj != nil {
			r.committed[key], r.dirty = obj, true
		} else if _, ok := r.committed[key]; ok {
			delete(r.committed, key)
			r.dirty = true
		}
	}
	clear(r.recent)
	return r.dirty
}

// take returns the objects and holdings for the next snapshot. ok is false if the snapshot on disk already contains
// them.
func (r *recorder) take() (objects []source.Object, held []source.Holding, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dirty {
		return nil, nil, false
	}
	r.dirty = false
	compare := func(a, b source.Object) int { return a.Key().Compare(b.Key()) }
	return slices.SortedFunc(maps.Values(r.committed), compare), r.held, true
}

// again makes the next take return the objects again, after a failed write.
func (r *recorder) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = true
}

// clean reports whether the snapshot contains all committed data.
func (r *recorder) clean() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed != nil && !r.dirty
}

func (r *recorder) note(key source.Key, obj source.Object) {
	if key.Kind == source.KindDocument { // a Document is a fault, not state
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recent[key] = obj
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
	r.synced = true // set this first, because the call of the sink may cause a commit
	r.mu.Unlock()
	r.sink.Synced()
}
