package kube

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// guard passes the events of w on, notes that the API server was heard, and ends a watch that is
// silent for too long; the reflector then goes on with a new one where this one ended.
func (f *feed) guard(w watch.Interface, st *store) watch.Interface {
	silent := time.AfterFunc(silence, w.Stop)
	started, heard := time.Now(), false
	filtered := watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Error {
			return e, f.watchError(e, heard || time.Since(started) > minGap)
		}
		heard = true
		silent.Reset(silence)
		f.health.touch()
		return e, true
	})
	return &guarded{Interface: filtered, silent: silent}
}

type guarded struct {
	watch.Interface
	silent *time.Timer
}

// Stop implements watch.Interface.
func (g *guarded) Stop() {
	g.silent.Stop()
	g.Interface.Stop()
}

// watchError reports whether the reflector shall see the error. client-go (v0.37.2) turns the loss
// of a connection into an error event, and the reflector answers any error with a full list. So
// when a watch that worked breaks off, its error is left out: its end alone makes the reflector go on
// from the last event. A watch that fails at once may fail on an event that can not be decoded;
// there only a list helps.
func (f *feed) watchError(e watch.Event, worked bool) (pass bool) {
	err := apierrors.FromObject(e.Object)
	brokenOff := apierrors.HasStatusCause(err, metav1.CauseType("ClientWatchDecoding"))
	f.health.fail(describe(f.source.client.host, "watch "+f.resource, err))
	f.source.logChange()
	return !(brokenOff && worked)
}
