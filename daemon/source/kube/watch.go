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

// watcher passes a watch's events to the reflector, records contact with the API server, and decides whether the watch
// ended with a fault. The reflector's next watch continues after the last event of the previous watch.
type watcher struct {
	watch.Interface
	session *session
	call    *call
	timeout time.Duration
	long    bool
	events  chan watch.Event

	stop    sync.Once
	stopped chan struct{}

	// Only the relay goroutine uses the following fields.
	heard  bool      // whether the watcher has received an event that counts as contact
	failed bool      // whether the watcher has passed on or recorded an error
	until  time.Time // the time after which an event ends a watch that started with a list
}

func (w *watcher) start(ctx context.Context, s *session, inner watch.Interface) watch.Interface {
	w.Interface, w.session = inner, s
	w.events, w.stopped = make(chan watch.Event), make(chan struct{})
	s.source.spawn(&s.relays, func() { w.relay(ctx) })
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
		if !w.acceptEvent(ctx, e) {
			continue
		}
		w.pass(e)
		if !w.until.IsZero() && time.Now().After(w.until) {
			w.Stop()
		}
	}
	select {
	case <-w.stopped: // the reflector stopped the watch, which client-go reports as a broken connection
	default:
		w.judgeEnd(ctx, time.Since(began))
	}
}

func (w *watcher) pass(e watch.Event) {
	select {
	case w.events <- e:
	case <-w.stopped:
	}
}

// acceptEvent examines an event and reports whether the reflector should receive it.
func (w *watcher) acceptEvent(ctx context.Context, e watch.Event) bool {
	if e.Type == watch.Error {
		return w.acceptError(ctx, apierrors.FromObject(e.Object))
	}
	if want := reflect.TypeOf(w.session.example); reflect.TypeOf(e.Object) != want {
		w.fail(ctx, fmt.Errorf("an event for %s contained an object of another type", w.session.resource))
		w.Interface.Stop()
		return false
	}
	if w.call.list && !w.heard {
		o, err := meta.Accessor(e.Object)
		if err != nil || e.Type != watch.Bookmark || o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return true
		}
		w.call.verb, w.long, w.until = "watch", true, time.Now().Add(longWatch+rand.N(longJitter))
		w.call.endList(bookmarkLimit)
	}
	w.heard = true
	w.session.expired.Store(0)
	w.session.health.noteContact()
	return true
}

// acceptError reports whether the reflector should receive the error. After any error event, the reflector requests a
// full list. In client-go (v0.37.2), a lost connection also causes an error event. If the watch ends without an error,
// the reflector continues after the last event. After an undecodable event, the reflector needs a full list.
func (w *watcher) acceptError(ctx context.Context, err error) bool {
	if w.failed || w.call.incompleteError() != nil {
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

var (
	errHalfList = errors.New("the list ended early")
	errAtOnce   = errors.New("the watch ended immediately, without an event")
)

const (
	minWatchTime = 5 * time.Second
	// maxContactAge is the maximum age of the last contact when a watch ends without an event. If the last contact is
	// older, the reflector must request a list. API servers before v1.29, and API servers that have restored an older
	// state, might not send bookmarks.
	maxContactAge = 4 * time.Minute
)

// maxQuietWatch is the longest silence on a long watch after which Edgeway still reports a broken connection as a
// fault. After a longer silence, a proxy may have broken the connection, because proxies close silent connections after
// 50 s or a minute. Edgeway then uses short watches for shortTime, because a short watch ends with a bookmark.
const maxQuietWatch = 40 * time.Second

// judgeEnd decides whether a watch that the reflector did not stop has ended with a fault.
func (w *watcher) judgeEnd(ctx context.Context, lasted time.Duration) {
	contact, _ := w.session.health.get()
	lost := w.call.incompleteError()
	quiet := w.long && w.call.silentFor() > maxQuietWatch
	if quiet {
		w.session.health.noteNoBookmark()
	}
	switch {
	case w.failed: // the error is already recorded, and may have ended the watch
	case lost != nil && !quiet:
		w.fail(ctx, lost)
	case w.heard:
	case w.call.list:
		w.fail(ctx, errHalfList)
	case lasted < minWatchTime:
		w.fail(ctx, errAtOnce)
	case time.Since(contact) > maxContactAge:
		expired := apierrors.NewResourceExpired("no event for too long")
		w.pass(watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
	}
}

func (w *watcher) fail(ctx context.Context, err error) {
	w.failed = true
	select {
	case <-w.stopped: // the reflector stopped the watch, which client-go reports as a broken connection
	default:
		_ = w.session.recordFailure(ctx, w.call, err)
	}
}

// toleratedExpiries is the number of consecutive watches that may fail because of an expired or too new resource
// version before Edgeway reports a fault. A single failure is normal after a lost connection or an API server restart.
const toleratedExpiries = 2

// hasExpired reports whether err is a tolerated failure of a watch whose resource version has expired or is too new. A
// resource version is too new if the API server lags behind or has restored an older state. hasExpired also delays the
// next list by a random time.
func (f *feed) hasExpired(err error) bool {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !isAhead(err) {
		return false
	}
	f.lists.delay(0, listSpread)
	return f.expired.Add(1) <= toleratedExpiries
}
