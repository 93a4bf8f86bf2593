package tracker

import (
	"edgeway/daemon/source"
)

type layer struct {
	name    string
	primary *layer // nil for a primary layer; otherwise, this layer is a fallback for primary
	synced  bool
	objects map[source.Key]source.Object
	// changes counts the changes to objects other than Documents, which describe faults.
	changes uint64

	// Only a fallback uses deletedKeys and retired. deletedKeys holds the keys of the objects that the primary layer
	// deleted. retired reports whether the primary layer has replaced the fallback.
	deletedKeys map[source.Key]struct{}
	retired     bool
}

func newLayer(name string) *layer {
	return &layer{name: name, objects: map[source.Key]source.Object{}, deletedKeys: map[source.Key]struct{}{}}
}

// put stores an object, or removes the object with this key if obj is nil. A fallback ignores an object that the
// primary layer has deleted, and ignores all objects after a call to retire.
func (l *layer) put(key source.Key, obj source.Object) {
	_, hidden := l.deletedKeys[key]
	if key.Kind != source.KindDocument {
		l.changes++
	}
	switch {
	case obj == nil:
		delete(l.objects, key)
	case !hidden && !l.retired:
		l.objects[key] = obj
	}
}

// hide removes an object that the primary layer deleted. If the fallback's source later adds the object, the fallback
// ignores it.
func (l *layer) hide(key source.Key) {
	if l.retired {
		return
	}
	delete(l.objects, key)
	l.deletedKeys[key] = struct{}{}
}

// retire removes and returns all objects.
func (l *layer) retire() (objects map[source.Key]source.Object) {
	objects, l.objects = l.objects, nil
	l.deletedKeys, l.retired = nil, true
	return objects
}
