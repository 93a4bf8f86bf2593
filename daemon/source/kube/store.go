package kube

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"k8s.io/client-go/tools/cache"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
)

// store receives the objects of a feed from the reflector. The store converts each object immediately, and passes on
// only versions that differ from the previous version, because most updates of a Service change only fields that a
// proxy does not read. Only the reflector's goroutine uses the store.
type store struct {
	feed   *feed
	ctx    context.Context //nolint:containedctx // the reflector passes no context to its store
	events chan<- event

	converter convert.Converter
	// known shares its objects with the receiver behind the sink.
	known map[source.Key]source.Object
	// past lists the keys of objects from earlier stores until the first complete list arrives.
	past []source.Key
}

var _ cache.TransformingStore = (*store)(nil)

// item is a converted object in the form that the reflector stores.
type item struct {
	object source.Object // nil if Edgeway does not serve the object
}

// Transformer returns a function with which the reflector converts each object of a streamed list to an item.
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
		s.remove(keyOf(obj))
		return nil
	}
	key := it.object.Key()
	if old, ok := s.known[key]; ok && reflect.DeepEqual(old, it.object) {
		return nil
	}
	s.known[key] = it.object
	s.send(event{upsert: it.object})
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	s.remove(keyOf(obj))
	return nil
}

func (s *store) remove(key source.Key) {
	if _, ok := s.known[key]; ok {
		delete(s.known, key)
		s.send(event{gone: key})
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
		if old, ok := s.known[key]; ok && reflect.DeepEqual(old, it.object) {
			next[key] = old
			continue
		}
		next[key] = it.object
		s.send(event{upsert: it.object})
	}
	for key := range s.known {
		if _, ok := next[key]; !ok {
			s.send(event{gone: key})
		}
	}
	s.forget(func(key source.Key) bool {
		_, ok := next[key]
		return ok
	})
	s.known = next
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

// keyOf returns the key of an object, even if the object cannot be converted.
func keyOf(obj any) source.Key {
	switch o := obj.(type) {
	case *corev1.Service:
		return source.Key{Kind: source.KindService, Namespace: o.Namespace, Name: o.Name}
	case *discoveryv1.EndpointSlice:
		return source.Key{Kind: source.KindEndpointSlice, Namespace: o.Namespace, Name: o.Name}
	case *corev1.Node:
		return source.Key{Kind: source.KindNode, Name: o.Name}
	case *networkingv1.ServiceCIDR:
		return source.Key{Kind: source.KindServiceCIDR, Name: o.Name}
	}
	return source.Key{}
}

func toService(c *convert.Converter, obj any) (source.Object, bool) {
	if o, ok := obj.(*corev1.Service); ok {
		if out, ok := c.Service(o); ok {
			return out, true
		}
	}
	return nil, false
}

func toEndpointSlice(c *convert.Converter, obj any) (source.Object, bool) {
	if o, ok := obj.(*discoveryv1.EndpointSlice); ok {
		if out, ok := c.EndpointSlice(o); ok {
			return out, true
		}
	}
	return nil, false
}

func toNode(c *convert.Converter, obj any) (source.Object, bool) {
	if o, ok := obj.(*corev1.Node); ok {
		return c.Node(o), true
	}
	return nil, false
}

func toServiceCIDR(c *convert.Converter, obj any) (source.Object, bool) {
	if o, ok := obj.(*networkingv1.ServiceCIDR); ok {
		return c.ServiceCIDR(o), true
	}
	return nil, false
}
