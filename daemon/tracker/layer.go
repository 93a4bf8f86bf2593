package tracker

import (
	"slices"

	"edgeway/daemon/source"
	"edgeway/daemon/source/keyed"
)

// layer is what one source has said.
type layer struct {
	name    string
	primary *layer // whose fallback this is; nil for a primary layer
	synced  bool
	objects keyed.Set[source.Key, source.Object]

	// Only of a fallback: what its primary deleted, and whether the primary has taken over for good.
	hidden  map[source.Key]struct{}
	retired bool
}

func newLayer(name string) *layer {
	return &layer{name: name, hidden: map[source.Key]struct{}{}}
}

// put stores an object, or removes it when obj is nil. What a fallback says of objects that are no
// longer its own is ignored.
func (l *layer) put(key source.Key, obj source.Object) {
	_, hidden := l.hidden[key]
	switch {
	case obj == nil:
		l.objects.Delete(key)
	case !hidden && !l.retired:
		l.objects.Put(obj)
	}
}

// hide forgets an object that the primary deleted, also when the fallback mentions it only later.
func (l *layer) hide(key source.Key) {
	if l.retired {
		return
	}
	l.objects.Delete(key)
	l.hidden[key] = struct{}{}
}

// retire forgets everything, and gives what was there.
func (l *layer) retire() (objects keyed.Set[source.Key, source.Object]) {
	objects, l.objects = l.objects, objects
	l.hidden, l.retired = nil, true
	return objects
}

func (l *layer) list() []source.Object {
	return slices.AppendSeq(make([]source.Object, 0, l.objects.Len()), l.objects.All())
}
