package tracker

import (
	"edgeway/daemon/source"
)

// layer is what one source has said.
type layer struct {
	name    string
	primary *layer // whose fallback this is; nil for a primary layer
	synced  bool
	objects map[source.Key]source.Object

	// Only of a fallback: what its primary deleted, and whether the primary has taken over for good.
	hidden  map[source.Key]struct{}
	retired bool
}

func newLayer(name string) *layer {
	return &layer{name: name, objects: map[source.Key]source.Object{}, hidden: map[source.Key]struct{}{}}
}

// put stores an object, or removes it when obj is nil. What a fallback says of objects that are no
// longer its own is ignored.
func (l *layer) put(key source.Key, obj source.Object) {
	_, hidden := l.hidden[key]
	switch {
	case obj == nil:
		delete(l.objects, key)
	case !hidden && !l.retired:
		l.objects[key] = obj
	}
}

// hide forgets an object that the primary deleted, also when the fallback mentions it only later.
func (l *layer) hide(key source.Key) {
	if l.retired {
		return
	}
	delete(l.objects, key)
	l.hidden[key] = struct{}{}
}

// retire forgets all objects and returns them.
func (l *layer) retire() (objects map[source.Key]source.Object) {
	objects, l.objects = l.objects, nil
	l.hidden, l.retired = nil, true
	return objects
}
