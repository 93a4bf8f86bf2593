package kube

import (
	"context"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
)

// store receives a feed's objects from the reflector. The store converts each object immediately, and passes the result
// on only if it differs from the previous version. Most Service updates change only fields that a proxy does not read.
// Only the reflector's goroutine uses the store.
type store struct {
	feed   *feed
	ctx    context.Context //nolint:containedctx // the reflector passes no context to its store
	events chan<- event

	converter convert.Converter
	// sentObjects contains this store's objects that are in the sink. The store and the sink share these objects. When
	// ctx is done, sentObjects may contain more objects than the sink, because the store drops the events that the sink
	// has not received.
	sentObjects map[source.Key]source.Object
	// earlierKeys lists the keys of objects from earlier stores until the store receives the first complete list.
	earlierKeys []source.Key
}

var _ cache.TransformingStore = (*store)(nil)

// item is a converted object in the form that the reflector stores.
type item struct {
	object source.Object // nil if Edgeway does not serve the object
}

// Transformer returns the function that the reflector uses to convert each object in a streamed list to an item.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.item(obj), nil }
}

func (s *store) item(obj any) item {
	if it, ok := obj.(item); ok {
		return it
	}
	if o, ok := s.feed.convert(&s.converter, obj); ok {
		return item{o}
	}
	return item{}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore. Update removes an object that Edgeway no longer serves, such as a Service
// that became headless.
func (s *store) Update(obj any) error {
	it := s.item(obj)
	if it.object == nil {
		s.remove(s.keyOf(obj))
		return nil
	}
	key := it.object.Key()
	if old, ok := s.sentObjects[key]; ok && reflect.DeepEqual(old, it.object) {
		return nil
	}
	s.sentObjects[key] = it.object
	s.send(event{upsert: it.object})
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	s.remove(s.keyOf(obj))
	return nil
}

func (s *store) remove(key source.Key) {
	if _, ok := s.sentObjects[key]; !ok {
		return
	}
	s.send(event{gone: key})
	if s.ctx.Err() == nil {
		delete(s.sentObjects, key)
	}
}

// Replace implements cache.ReflectorStore. Replace removes the objects that are not in the complete list.
func (s *store) Replace(list []any, _ string) error {
	next := make(map[source.Key]source.Object, len(list))
	for i, obj := range list {
		it := s.item(obj)
		list[i] = nil // a list that was not streamed is large, so release the list item by item
		if it.object == nil {
			continue
		}
		key := it.object.Key()
		if old, ok := s.sentObjects[key]; ok && reflect.DeepEqual(old, it.object) {
			next[key] = old
			continue
		}
		next[key] = it.object
		s.send(event{upsert: it.object})
	}
	for _, key := range s.keys() {
		if _, ok := next[key]; !ok {
			s.send(event{gone: key})
		}
	}
	if err := s.ctx.Err(); err != nil {
		maps.Copy(s.sentObjects, next)
		return err
	}
	s.sentObjects, s.earlierKeys = next, nil
	s.answered()
	return nil
}

// Resync implements cache.ReflectorStore, and has no effect.
func (s *store) Resync() error { return nil }

func (s *store) answered() { s.send(event{answered: true}) }

func (s *store) send(e event) {
	e.feed = s.feed
	select {
	case s.events <- e:
	case <-s.ctx.Done():
	}
}

// keyOf returns the key of an object, even if Edgeway cannot convert the object.
func (s *store) keyOf(obj any) source.Key {
	o, err := meta.Accessor(obj)
	if err != nil {
		return source.Key{}
	}
	return source.Key{Kind: s.feed.kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// adapt returns a function that converts objects of type K and rejects all other objects.
func adapt[K any, T source.Object](
	typed func(*convert.Converter, K) (T, bool),
) func(*convert.Converter, any) (source.Object, bool) {
	return func(c *convert.Converter, obj any) (source.Object, bool) {
		o, ok := obj.(K)
		if !ok {
			return nil, false
		}
		return typed(c, o)
	}
}
