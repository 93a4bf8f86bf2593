// Package tracker merges the sources' objects into snapshots for the planner.
//
// Each source writes to its own layer. The layers are ordered. If several layers contain an object, Edgeway serves the
// version in the first of these layers. A fallback layer stands in for another layer (the last-known state for the API
// server) until the other layer's source has listed all objects.
//
// The tracker is incremental: after one change among 30,000 Services, a snapshot copies one slice of pointers and
// shares all other data with the previous snapshot.
package tracker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/source"
)

// Layer describes the layer of one source.
type Layer struct {
	// Name is the source's name.
	Name string
	// FallbackFor is the name of the layer that this layer stands in for, or "" for a primary layer. Edgeway serves a
	// fallback's objects until the primary layer has synced. When the primary layer has synced, the tracker removes all
	// of the fallback's objects at once, because an object that the primary layer has not listed no longer exists.
	FallbackFor string
}

// Tracker merges layers. A Tracker is safe for concurrent use.
type Tracker struct {
	changed chan struct{}

	mu     sync.Mutex
	layers []*layer
	view   *view
	open   bool // whether the layers hold enough objects for a snapshot
	hidden map[source.Key]struct{}
}

// New returns a tracker with the given layers, in descending order of priority. New panics if a name occurs twice or if
// a FallbackFor names an unknown layer, because both are programming errors.
func New(layers ...Layer) *Tracker {
	t := &Tracker{changed: make(chan struct{}, 1), view: newView(time.Now()), hidden: map[source.Key]struct{}{}}
	for _, l := range layers {
		if t.layer(l.Name) != nil {
			panic(fmt.Sprintf("layer %q occurs twice", l.Name))
		}
		t.layers = append(t.layers, newLayer(l.Name))
	}
	for i, l := range layers {
		if l.FallbackFor == "" {
			continue
		}
		primary := t.layer(l.FallbackFor)
		if primary == nil {
			panic(fmt.Sprintf("layer %q is a fallback for the unknown layer %q", l.Name, l.FallbackFor))
		}
		t.layers[i].primary = primary
	}
	return t
}

func (t *Tracker) layer(name string) *layer {
	i := slices.IndexFunc(t.layers, func(l *layer) bool { return l.name == name })
	if i < 0 {
		return nil
	}
	return t.layers[i]
}

// Sink returns the sink for the layer's source. Sink panics if the layer is unknown.
func (t *Tracker) Sink(name string) source.Sink {
	l := t.layer(name)
	if l == nil {
		panic(fmt.Sprintf("unknown layer %q", name))
	}
	return sink{t, l}
}

// Changes returns the number of changes to a layer's objects. synced reports whether the layer's source has listed all
// objects.
func (t *Tracker) Changes(name string) (n uint64, synced bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.layer(name)
	return l.changes, l.synced
}

// Objects returns a layer's objects in any order.
func (t *Tracker) Objects(name string) []source.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.layer(name).objects))
}

// Changed returns a channel that receives a value when the first snapshot becomes available, and then after changes. A
// single value may stand for many changes.
func (t *Tracker) Changed() <-chan struct{} { return t.changed }

// Snapshot returns the current state, with Changed and Triggers relative to the previous call. ok is false until two
// conditions hold: every primary layer or its fallback has synced, and a primary layer has synced or a fallback holds
// objects. Once true, ok stays true.
func (t *Tracker) Snapshot() (s *Snapshot, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return nil, false
	}
	s = t.view.snapshot()
	s.Complete = t.complete()
	return s, true
}

// put stores an object, or removes the object with this key if obj is nil, and updates the view. The caller must hold
// the lock.
func (t *Tracker) put(l *layer, key source.Key, obj source.Object) {
	before := t.servedObject(key)
	l.put(key, obj)
	if obj == nil {
		for _, fallback := range t.layers {
			if fallback.primary == l {
				fallback.hide(key)
			}
		}
	}
	t.update(key, before)
	t.noteHidden(key)
}

// markSynced marks the layer as synced and removes the objects of its fallbacks. The caller must hold the lock.
func (t *Tracker) markSynced(l *layer) {
	if l.synced {
		return
	}
	l.synced = true
	for _, fallback := range t.layers {
		if fallback.primary != l {
			continue
		}
		for key, obj := range fallback.retire() {
			if t.servedObjectAbove(fallback, key) == nil {
				t.update(key, obj)
			}
			t.noteHidden(key)
		}
	}
	opens := !t.open && t.canSnapshot()
	if opens {
		t.open = true
	}
	if opens || t.open && t.complete() {
		t.notify()
	}
}

func (t *Tracker) complete() bool {
	return !slices.ContainsFunc(t.layers, func(l *layer) bool { return l.primary == nil && !l.synced })
}

// update updates the view and signals t.changed if Edgeway now serves another version of the object.
func (t *Tracker) update(key source.Key, before source.Object) {
	after := t.servedObject(key)
	if before == after {
		return
	}
	t.view.replace(before, after)
	if t.open {
		t.notify()
	}
}

// noteHidden updates t.hidden after a change to the object with this key. The caller must hold the lock.
func (t *Tracker) noteHidden(key source.Key) {
	if key.Kind != source.KindService {
		return
	}
	var first *layer
	hidden := false
	for _, l := range t.layers {
		if _, ok := l.objects[key]; ok {
			first = cmp.Or(first, l.primary, l)
			hidden = hidden || first != cmp.Or(l.primary, l)
		}
	}
	if hidden {
		t.hidden[key] = struct{}{}
	} else {
		delete(t.hidden, key)
	}
}

// HiddenServices returns the sorted keys of the Services that exist in several sources. A source and its last-known
// state count as one source.
func (t *Tracker) HiddenServices() []source.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.hidden), source.Key.Compare)
}

// servedObject returns the object from the first layer that contains the key, or nil if no layer does.
func (t *Tracker) servedObject(key source.Key) source.Object { return t.servedObjectAbove(nil, key) }

// servedObjectAbove is like servedObject, but considers only the layers that precede the given layer.
func (t *Tracker) servedObjectAbove(below *layer, key source.Key) source.Object {
	for _, l := range t.layers {
		if l == below {
			return nil
		}
		if obj, ok := l.objects[key]; ok {
			return obj
		}
	}
	return nil
}

// canSnapshot reports whether the two conditions in Snapshot's doc comment are met.
func (t *Tracker) canSnapshot() bool {
	known := false
	for _, l := range t.layers {
		if l.primary != nil {
			known = known || len(l.objects) > 0
			continue
		}
		known = known || l.synced
		standIn := func(f *layer) bool { return f.primary == l && f.synced }
		if !l.synced && !slices.ContainsFunc(t.layers, standIn) {
			return false
		}
	}
	return known
}

func (t *Tracker) notify() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

type sink struct {
	t *Tracker
	l *layer
}

// Upsert implements source.Sink.
func (s sink) Upsert(obj source.Object) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.put(s.l, obj.Key(), obj)
}

// Delete implements source.Sink.
func (s sink) Delete(key source.Key) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.put(s.l, key, nil)
}

// Synced implements source.Sink.
func (s sink) Synced() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.markSynced(s.l)
}
