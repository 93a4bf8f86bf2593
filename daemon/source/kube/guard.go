package kube

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// guard passes the events of w on, notes that the API server was heard, and ends a watch that is
// silent for too long; the reflector then goes on with a new one where this one ended.
func (f *feed) guard(ctx context.Context, w watch.Interface) watch.Interface {
	g := &guarded{silent: time.AfterFunc(silence, w.Stop)}
	started, heard := time.Now(), false
	g.Interface = watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Error {
			// Stopping a watch makes client-go report a broken connection.
			stopped := ctx.Err() != nil || g.stopped.Load()
			return e, !stopped && f.watchError(e, heard || time.Since(started) > minGap)
		}
		heard = true
		g.silent.Reset(silence)
		f.expired.Store(0)
		f.health.touch()
		return e, true
	})
	return g
}

type guarded struct {
	watch.Interface
	silent  *time.Timer
	stopped atomic.Bool
}

// Stop implements watch.Interface.
func (g *guarded) Stop() {
	g.stopped.Store(true)
	g.silent.Stop()
	g.Interface.Stop()
}

// watchError reports whether the reflector shall see the error. client-go (v0.37.2) turns the loss
// of a connection into an error event, and the reflector answers any error with a full list. So
// when a watch that worked breaks off, its error is left out: its end alone makes the reflector go on
// from the last event. A watch that fails at once may fail on an event that cannot be decoded;
// there only a list helps.
func (f *feed) watchError(e watch.Event, worked bool) (pass bool) {
	err := apierrors.FromObject(e.Object)
	brokenOff := apierrors.HasStatusCause(err, metav1.CauseType("ClientWatchDecoding"))
	if !f.hasExpired(err) {
		f.health.fail(describe(f.source.client.host(), "watch "+f.resource, err))
		f.source.logChange()
	}
	return !(brokenOff && worked)
}

// toleratedExpiries is how many watches in a row may be too late before that is a fault. One that is
// too late is normal after a time without connection, or when the API server was restarted.
const toleratedExpiries = 2

// hasExpired reports whether err only says that the watch began too late and a list is needed.
func (f *feed) hasExpired(err error) bool {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return false
	}
	return f.expired.Add(1) <= toleratedExpiries
}
