package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// guard passes the events of a watch on, notes that the API server was heard, and judges how the watch
// ended. After its end the reflector goes on with a new one where this one ended.
type guard struct {
	watch.Interface
	feed     *feed
	exchange *exchange
	events   chan watch.Event

	stop    sync.Once
	stopped chan struct{}

	// Used by relay alone.
	heard  bool // an event that counts
	failed bool // an error was passed on or noted
}

// listEnd is how long a stream goes on as a watch after the list. Ordinary watches are told apart from
// broken ones sooner; but the reflector lists again after a watch of less than a second.
const listEnd = 10 * time.Second

func (f *feed) guard(ctx context.Context, w watch.Interface, x *exchange) watch.Interface {
	g := &guard{Interface: w, feed: f, exchange: x, events: make(chan watch.Event), stopped: make(chan struct{})}
	f.source.work(&f.relays, func() { g.relay(ctx) })
	return g
}

// ResultChan implements watch.Interface.
func (g *guard) ResultChan() <-chan watch.Event { return g.events }

// Stop implements watch.Interface.
func (g *guard) Stop() {
	g.stop.Do(func() {
		close(g.stopped)
		g.Interface.Stop()
	})
}

func (g *guard) relay(ctx context.Context) {
	defer close(g.events)
	began := time.Now()
	for e := range g.Interface.ResultChan() {
		if g.take(ctx, e) {
			g.pass(e)
		}
	}
	select {
	case <-g.stopped: // on purpose; client-go reports a broken connection then
	default:
		g.ended(ctx, time.Since(began))
	}
}

func (g *guard) pass(e watch.Event) {
	select {
	case g.events <- e:
	case <-g.stopped:
	}
}

// take judges an event and reports whether the reflector shall see it.
func (g *guard) take(ctx context.Context, e watch.Event) bool {
	if e.Type == watch.Error {
		return g.takeError(ctx, apierrors.FromObject(e.Object))
	}
	if want := reflect.TypeOf(g.feed.example); reflect.TypeOf(e.Object) != want {
		g.fail(ctx, fmt.Errorf("an event with something other than %s", g.feed.resource))
		g.Interface.Stop()
		return false
	}
	if g.exchange.list && !g.heard {
		// Half a list says nothing about the rest.
		o, err := meta.Accessor(e.Object)
		if err != nil || e.Type != watch.Bookmark || o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return true
		}
		g.exchange.verb = "watch"
		time.AfterFunc(listEnd, g.Stop)
	}
	g.heard = true
	g.feed.expired.Store(0)
	g.feed.ok()
	return true
}

// takeError reports whether the reflector shall see the error. It answers any error with a full list.
// client-go (v0.37.2) makes an error of the server from the loss of a connection, too: there the end
// of the watch alone makes the reflector go on from the last event. After an event that cannot be
// decoded only a list helps.
func (g *guard) takeError(ctx context.Context, err error) bool {
	if g.failed || g.exchange.lost() != nil {
		return false
	}
	if cause, ok := apierrors.StatusCause(err, "ClientWatchDecoding"); ok {
		err = errors.New(cause.Message)
	}
	if g.feed.hasExpired(err) {
		g.failed = true
	} else {
		g.fail(ctx, err)
	}
	return true
}

// The ways in which a watch ends too soon.
var (
	errHalfList = errors.New("the list ended in the middle")
	errAtOnce   = errors.New("it ended at once, without an event")
)

const (
	atOnce = 5 * time.Second
	// doubt is how long ago the last contact may be when a watch ends without an event. API servers
	// before v1.29, and those that restored an older state, may send no bookmarks: a list tells.
	doubt = 4 * time.Minute
)

// ended judges the end of a watch that nobody stopped.
func (g *guard) ended(ctx context.Context, lasted time.Duration) {
	contact, _ := g.feed.health.get()
	switch lost := g.exchange.lost(); {
	case g.failed: // this may be why it ended
	case lost != nil:
		g.fail(ctx, lost)
	case g.heard:
	case g.exchange.list:
		g.fail(ctx, errHalfList)
	case lasted < atOnce:
		g.fail(ctx, errAtOnce)
	case time.Since(contact) > doubt:
		expired := apierrors.NewResourceExpired("no event for too long")
		g.pass(watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
	}
}

func (g *guard) fail(ctx context.Context, err error) {
	g.failed = true
	select {
	case <-g.stopped: // client-go reports a broken connection
	default:
		_ = g.feed.failed(ctx, g.exchange, err)
	}
}

// toleratedExpiries is how many watches in a row may be too late, or ahead of the API server, before
// that is a fault. One is normal after a time without connection, or when the API server was restarted.
const toleratedExpiries = 2

// hasExpired reports whether err only says that the watch began too late, or too early for an API server
// that lags or restored an older state, and a list is needed, to which it gives a time by chance.
func (f *feed) hasExpired(err error) bool {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !isAhead(err) {
		return false
	}
	f.lists.hold(0, listSpread)
	return f.expired.Add(1) <= toleratedExpiries
}
