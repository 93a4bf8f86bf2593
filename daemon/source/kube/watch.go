package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher passes the events of a watch to the reflector, notes contact with the API server, and judges how the watch
// ended. The reflector starts the next watch where this one ended.
type watcher struct {
	watch.Interface
	session *session
	call    *call
	timeout time.Duration
	// long reports whether the watch depends on the minute's bookmark.
	long   bool
	events chan watch.Event

	stop    sync.Once
	stopped chan struct{}

	// Used by relay alone.
	heard  bool      // an event that counts
	failed bool      // an error was passed on or noted
	until  time.Time // after it, an event ends a watch that began with a list
}

// start passes on the events of inner.
func (w *watcher) start(ctx context.Context, s *session, inner watch.Interface) watch.Interface {
	w.Interface, w.session = inner, s
	w.events, w.stopped = make(chan watch.Event), make(chan struct{})
	s.source.work(&s.relays, func() { w.relay(ctx) })
	return w
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.Interface.Stop()
	})
}

func (w *watcher) relay(ctx context.Context) {
	defer close(w.events)
	began := time.Now()
	for e := range w.Interface.ResultChan() {
		if !w.take(ctx, e) {
			continue
		}
		w.pass(e)
		if !w.until.IsZero() && time.Now().After(w.until) {
			w.Stop()
		}
	}
	select {
	case <-w.stopped: // on purpose; client-go reports a broken connection then
	default:
		w.ended(ctx, time.Since(began))
	}
}

func (w *watcher) pass(e watch.Event) {
	select {
	case w.events <- e:
	case <-w.stopped:
	}
}

// take judges an event and reports whether the reflector shall see it.
func (w *watcher) take(ctx context.Context, e watch.Event) bool {
	if e.Type == watch.Error {
		return w.takeError(ctx, apierrors.FromObject(e.Object))
	}
	if want := reflect.TypeOf(w.session.example); reflect.TypeOf(e.Object) != want {
		w.fail(ctx, fmt.Errorf("an event with something other than %s", w.session.resource))
		w.Interface.Stop()
		return false
	}
	if w.call.list && !w.heard {
		// Half a list says nothing about the rest.
		o, err := meta.Accessor(e.Object)
		if err != nil || e.Type != watch.Bookmark || o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return true
		}
		w.call.verb, w.long, w.until = "watch", true, time.Now().Add(longWatch+rand.N(longJitter))
		w.call.endList(bookmarkLimit)
	}
	w.heard = true
	w.session.expired.Store(0)
	w.session.ok()
	return true
}

// takeError reports whether the reflector shall see the error. It answers any error with a full list.
// client-go (v0.37.2) makes an error of the server from the loss of a connection, too: there the end
// of the watch alone makes the reflector go on from the last event. After an event that cannot be
// decoded only a list helps.
func (w *watcher) takeError(ctx context.Context, err error) bool {
	if w.failed || w.call.lost() != nil {
		return false
	}
	if cause, ok := apierrors.StatusCause(err, "ClientWatchDecoding"); ok {
		err = errors.New(cause.Message)
	}
	if w.session.hasExpired(err) {
		w.failed = true
	} else {
		w.fail(ctx, err)
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

// bookmarkless is a time without any event after which the end of a long watch says nothing about the API server: the
// next watch, a short one, tells. It is below the limits that proxies have for silent connections (50 s, a minute).
const bookmarkless = 40 * time.Second

// ended judges the end of a watch that the reflector did not stop.
func (w *watcher) ended(ctx context.Context, lasted time.Duration) {
	contact, _ := w.session.health.get()
	lost := w.call.lost()
	quiet := w.long && w.call.silentFor() > bookmarkless
	if quiet {
		w.session.health.noteNoBookmark()
	}
	switch {
	case w.failed: // this may be why it ended
	case lost != nil && !quiet:
		w.fail(ctx, lost)
	case w.heard:
	case w.call.list:
		w.fail(ctx, errHalfList)
	case lasted < atOnce:
		w.fail(ctx, errAtOnce)
	case time.Since(contact) > doubt:
		expired := apierrors.NewResourceExpired("no event for too long")
		w.pass(watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
	}
}

func (w *watcher) fail(ctx context.Context, err error) {
	w.failed = true
	select {
	case <-w.stopped: // client-go reports a broken connection
	default:
		_ = w.session.failed(ctx, w.call, err)
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
	f.lists.delay(0, listSpread)
	return f.expired.Add(1) <= toleratedExpiries
}
