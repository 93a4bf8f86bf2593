package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

// A failing follower must still receive each new plan, because it may be able to apply that plan.
func TestNewPlanDoesNotWaitForFollowerRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, follower := newWorld(), newKernel(t)
		w.set(1, 1)
		follower.fault = func(proxiers.Change) error { return errTransport }
		start(t, w, newKernel(t), nil, Stage{"healthcheck", follower})
		settle(10 * time.Minute) // the pipeline now retries every 30 s
		follower.takeChanges()
		w.set(1, 2)
		w.announce()
		settle(20 * time.Millisecond)
		if got := follower.takeChanges(); len(got) != 1 || len(got[0].Next.Services[0].Pools[plan.ClusterPool]) != 2 {
			t.Errorf("within 20 ms a failing follower got %d changes, want the new plan", len(got))
		}
	})
}

func TestStageFaultIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(1, 1)
		fault := errTransport
		k.fault = func(proxiers.Change) error { return fault }
		var log strings.Builder
		start(t, w, k, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		settle(time.Hour)
		if n := strings.Count(log.String(), messageid.SyncFailed); n != 1 {
			t.Errorf("logged %d times in an hour, want once", n)
		}
		k.mu.Lock()
		fault = errors.New("disk full")
		k.mu.Unlock()
		settle(time.Hour)
		if n := strings.Count(log.String(), messageid.SyncFailed); n != 2 ||
			!strings.Contains(log.String(), "disk full") {
			t.Errorf("logged %d times, want again when it is another fault", n)
		}
		k.mu.Lock()
		k.fault = nil
		k.mu.Unlock()
		settle(time.Minute)
		if !strings.Contains(log.String(), messageid.SyncRecovered) {
			t.Error("its end is not logged")
		}
	})
}

func TestFollowerDriftSyncsOnlyThatFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k, first, second := newWorld(), newKernel(t), newKernel(t), newKernel(t)
		w.set(1, 1)
		b := start(t, w, k, nil, Stage{"flowtable", first}, Stage{"healthcheck", second})
		settle(time.Minute)
		k.takeChanges()
		first.takeChanges()
		second.takeChanges()
		b.p.RequestFull("flowtable", "a device came")
		settle(time.Second)
		if f := first.takeChanges(); len(f) != 1 || f[0].Prev != nil || len(k.takeChanges()) != 0 ||
			len(second.takeChanges()) != 0 {
			t.Error("drift of a follower: want one full sync of it, and nothing of others")
		}
		if s := b.p.State(); s.Followers[0].DriftRepairs != 1 || s.Backend.DriftRepairs != 0 {
			t.Errorf("counted: %d of the follower, %d of the backend",
				s.Followers[0].DriftRepairs, s.Backend.DriftRepairs)
		}
		b.p.RequestFull("backend", "flushed")
		settle(time.Second)
		if len(k.takeChanges()) != 1 || len(first.takeChanges()) != 1 || len(second.takeChanges()) != 1 {
			t.Error("drift of the backend: want a full sync of all")
		}
	})
}

type lazy struct {
	*kernel
	mu         sync.Mutex
	due        time.Time
	maintained int
	err        error
}

func (l *lazy) Due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.due
}

func (l *lazy) Maintain(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maintained++
	l.due = time.Time{}
	if l.err != nil {
		l.due = time.Now().Add(time.Minute)
	}
	return l.err
}

func (l *lazy) times() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.maintained
}

func TestDeferredWorkRunsWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		l := &lazy{kernel: newKernel(t), due: time.Now().Add(time.Hour), err: errTransport}
		var log strings.Builder
		b := start(t, w, newKernel(t), func(o *Options) {
			o.FullSyncInterval, o.Logger = 0, slog.New(slog.NewTextHandler(&log, nil))
		}, Stage{"lazy", l})
		settle(59 * time.Minute)
		l.takeChanges()
		if n := l.times(); n != 0 {
			t.Fatalf("%d times before it was due", n)
		}
		settle(5*time.Minute + 30*time.Second)
		if n := strings.Count(log.String(), "deferred work failed"); l.times() != 5 || n != 1 {
			t.Errorf("failed %d times, want 5; logged %d times", l.times(), n)
		}
		if s := b.p.State(); s.Followers[0].Err != "" {
			t.Errorf("what is in force is not in question, but: %v", s.Followers[0].Err)
		}
		l.mu.Lock()
		l.err = nil
		l.mu.Unlock()
		settle(time.Hour)
		if l.times() != 6 {
			t.Errorf("done %d times, want 6", l.times())
		}
		if n := len(l.takeChanges()); n != 0 {
			t.Errorf("later work that failed made %d Applies", n)
		}
	})
}

// Deferred work may become due before the time that the stage announced.
func TestDeferredWorkDueEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		l := &lazy{kernel: newKernel(t), due: time.Now().Add(time.Hour)}
		b := start(t, w, newKernel(t), func(o *Options) { o.FullSyncInterval = 0 }, Stage{"lazy", l})
		settle(time.Minute)
		l.mu.Lock()
		l.due = time.Now()
		l.mu.Unlock()
		settle(time.Minute)
		if n := l.times(); n != 0 {
			t.Fatalf("done %d times before anybody said so", n)
		}
		b.p.Wake()
		settle(time.Second)
		if n := l.times(); n != 1 {
			t.Errorf("done %d times, want 1", n)
		}
	})
}
