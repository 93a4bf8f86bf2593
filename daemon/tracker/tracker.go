// Package tracker merges what the sources say into snapshots for the planner.
//
// Every source writes to a layer of its own. The layers have an order: an object is served by the
// first layer that has it. A fallback layer stands in for another one (the last-known state for the
// API server) until that one has listed all it has.
//
// The tracker is incremental: a snapshot after one change among 30,000 Services copies one slice of
// pointers and shares the rest with the snapshot before.
package tracker

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
)

// Layer names one source's objects.
type Layer struct {
	// Name is the source's name.
	Name string
	// FallbackFor is the layer that this one stands in for. Its objects serve until that layer has
	// synced, and are then forgotten all at once: what was not listed is gone. Empty: a primary layer,
	// one that speaks for itself.
	FallbackFor string
}

// Tracker merges layers. Its methods may be called from any goroutine.
type Tracker struct {
	changed chan struct{}

	mu     sync.Mutex
	layers []*layer // highest priority first
	view   *view    // what the layers amount to
	open   bool     // the gate: enough is known for a snapshot
}

// New returns a tracker of the layers, the one with the highest priority first. A name that occurs twice,
// or a FallbackFor that names no layer, is a mistake of the program and panics.
func New(layers ...Layer) *Tracker {
	t := &Tracker{changed: make(chan struct{}, 1), view: newView(time.Now())}
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
			panic(fmt.Sprintf("layer %q is the fallback of an unknown layer %q", l.Name, l.FallbackFor))
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

// Sink is the way in for the source of this layer. An unknown layer panics.
func (t *Tracker) Sink(name string) source.Sink {
	l := t.layer(name)
	if l == nil {
		panic(fmt.Sprintf("unknown layer %q", name))
	}
	return sink{t, l}
}

// Changed receives when Snapshot has something new to say: at the opening of the gate, and then after
// changes, many of which may be announced at once.
func (t *Tracker) Changed() <-chan struct{} { return t.changed }

// Snapshot returns the present state, with Changed and Triggers counted from the call before. ok is
// false until every primary layer, or its fallback, has synced and at least one primary has synced or
// one fallback has objects. Once true it stays so.
func (t *Tracker) Snapshot() (s *Snapshot, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return nil, false
	}
	err := contain.Call(func() error {
		s = t.view.snapshot()
		s.Complete = t.complete()
		return nil
	})
	if err != nil {
		t.view.renew()
		contain.Rethrow(err)
	}
	return s, true
}

// put stores an object, or removes it when obj is nil, and updates the view. The caller holds the lock.
func (t *Tracker) put(l *layer, key source.Key, obj source.Object) {
	before := t.served(key)
	l.put(key, obj)
	if obj == nil {
		for _, fallback := range t.layers {
			if fallback.primary == l {
				fallback.hide(key)
			}
		}
	}
	t.update(key, before)
}

// synced marks the layer and forgets its fallbacks. The caller holds the lock.
func (t *Tracker) synced(l *layer) {
	if l.synced {
		return
	}
	l.synced = true
	for _, fallback := range t.layers {
		if fallback.primary != l {
			continue
		}
		for key, obj := range fallback.retire() {
			if t.servedAbove(fallback, key) == nil {
				t.update(key, obj)
			}
		}
	}
	opens := !t.open && t.settled()
	if opens {
		t.open = true
	}
	if opens || t.open && t.complete() {
		t.notify()
	}
}

// complete reports whether every primary layer has synced.
func (t *Tracker) complete() bool {
	return !slices.ContainsFunc(t.layers, func(l *layer) bool { return l.primary == nil && !l.synced })
}

// update changes the view, and signals the reader, if another object serves the key than before.
func (t *Tracker) update(key source.Key, before source.Object) {
	after := t.served(key)
	if before == after {
		return
	}
	t.view.replace(before, after)
	if t.open {
		t.notify()
	}
}

// served is the object of the first layer that has one; nil when none has.
func (t *Tracker) served(key source.Key) source.Object { return t.servedAbove(nil, key) }

// servedAbove is served, looking only at the layers above the one given.
func (t *Tracker) servedAbove(below *layer, key source.Key) source.Object {
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

// settled is the condition of the gate.
func (t *Tracker) settled() bool {
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

// sink is a layer's way in.
type sink struct {
	t *Tracker
	l *layer
}

// Upsert implements source.Sink. An object whose merge panics is refused.
func (s sink) Upsert(obj source.Object) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	key := obj.Key()
	err := contain.Call(func() error {
		s.t.put(s.l, key, obj)
		return nil
	})
	if err == nil {
		return
	}
	refused := source.Refuse(key, "it cannot be merged: "+err.Error())
	if refused == nil {
		contain.Rethrow(err)
	}
	s.l.put(key, refused)
	if s.t.served(key) == refused {
		s.t.view.setFaults(key.Object(), nil)
		s.t.view.add(refused)
		s.t.notify()
	}
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
	s.t.synced(s.l)
}
