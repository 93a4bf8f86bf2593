package kube

import (
	"context"
	"maps"
	"slices"
	"sync"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/contain"
)

// spawn runs f in a goroutine. If f panics, Run also panics, so the caller can restart the source.
func (s *Source) spawn(group *sync.WaitGroup, f func()) {
	group.Go(func() { s.contain(f) })
}

func (s *Source) contain(f func()) {
	err := contain.Call(func() error {
		f()
		return nil
	})
	if err == nil {
		return
	}
	select {
	case s.panics <- err:
	default: // an earlier panic already ends Run
	}
}

// newStore returns an empty store that replaces the previous store, last, which may be nil. The new store removes the
// previous store's objects from the sink unless the next list contains them.
func newStore(ctx context.Context, f *feed, events chan<- event, last *store) *store {
	next := &store{
		feed: f, ctx: ctx, events: events, sentObjects: map[source.Key]source.Object{},
		converter: convert.Converter{BeforeConvert: f.source.options.BeforeConvert},
	}
	if last != nil {
		next.earlierKeys = last.keys()
	}
	return next
}

// keys returns the keys of all objects that this store and earlier stores may have sent to the sink.
func (s *store) keys() []source.Key {
	return slices.AppendSeq(slices.Clip(s.earlierKeys), maps.Keys(s.sentObjects))
}
