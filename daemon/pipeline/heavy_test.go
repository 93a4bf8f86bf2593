package pipeline

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers"
)

// limit says that a sync of more elements than limit fails, without a refusal.
func (k *kernel) limit(elements int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = func(c proxiers.Change) error {
		n := 0
		for _, svc := range c.Next.Services {
			n += weight(svc)
		}
		if n > elements {
			return errTransport
		}
		return nil
	}
}

// A small host runs out of memory with one Service: the others are served, and a new one is so at once.
func TestServicesThatNeedTooMuchAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 100 {
			w.set(i, 3)
		}
		w.set(200, 2000)
		w.set(300, 40_000)
		w.set(400, 30_000)
		k.limit(10_000)
		var log strings.Builder
		b := start(t, w, k, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		settle(5 * time.Second)
		s := b.p.State()
		if s.Backend.Err != nil || len(s.Quarantined) != 2 || s.Quarantined[0].Name.Name != "s00300" || s.Quarantined[1].Name.Name != "s00400" {
			t.Fatalf("error %v, left out: %v", s.Backend.Err, s.Quarantined)
		}
		for _, part := range []string{"60001 elements", errTransport.Error(), "more memory"} {
			if text := s.Quarantined[1].String(); !strings.Contains(text, part) {
				t.Errorf("%q does not say %q", text, part)
			}
		}
		if !strings.Contains(log.String(), "service=default/s00300 ") || len(s.InForce.Services) != 101 {
			t.Errorf("%d are in force, the log says\n%s", len(s.InForce.Services), log.String())
		}

		k.changes()
		w.set(500, 1)
		w.set(400, 29_999) // it changes all the time
		w.announce()
		settle(time.Second)
		if got := k.changes(); len(got) != 1 || got[0].Prev == nil || len(got[0].Changed) != 1 {
			t.Errorf("a new Service took %d applies, want one partial", len(got))
		}

		settle(10 * time.Minute)
		if n := len(k.changes()); n > 40 {
			t.Errorf("%d applies in 10 minutes: they are tried again too often", n)
		}
		k.limit(1_000_000)
		settle(3 * time.Hour)
		if s := b.p.State(); len(s.Quarantined) != 0 || len(s.InForce.Services) != 104 {
			t.Errorf("with memory enough: %d are in force, left out: %v", len(s.InForce.Services), s.Quarantined)
		}
		b.converged(t)
	})
}

// What is left out because of its size is served once it is small, and forgotten when it is gone.
func TestWhatGetsSmallIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(1, 3)
		w.set(2, 10_000)
		w.set(3, 10_000)
		k.limit(5_000)
		b := start(t, w, k, nil)
		settle(5 * time.Second)
		if s := b.p.State(); len(s.Quarantined) != 2 {
			t.Fatalf("left out: %v", s.Quarantined)
		}
		w.set(2, 10)
		w.remove(3)
		w.announce()
		settle(time.Second)
		if s := b.p.State(); len(s.Quarantined) != 0 || len(s.InForce.Services) != 2 {
			t.Errorf("%d are in force, left out: %v", len(s.InForce.Services), s.Quarantined)
		}
		b.converged(t)
	})
}

// Where nothing can be written at all, as without the program, no Service is to blame.
func TestAFailureOfEverythingBlamesNoSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(1, 3)
		w.set(2, 10_000)
		k.limit(0)
		b := start(t, w, k, nil)
		settle(10 * time.Minute)
		if s := b.p.State(); s.Backend.Err == nil || len(s.Quarantined) != 0 {
			t.Errorf("error %v, left out: %v", s.Backend.Err, s.Quarantined)
		}
		if n := len(k.changes()); n > 60 {
			t.Errorf("%d applies in 10 minutes", n)
		}
		k.limit(1_000_000)
		settle(time.Minute)
		b.converged(t)
	})
}

// A refused one among them is found as well.
func TestTooMuchAndRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 20 {
			w.set(i, 3)
		}
		k.refuses[w.set(50, 1)] = true
		w.set(100, 10_000)
		k.limit(5_000)
		b := start(t, w, k, nil)
		settle(5 * time.Second)
		if s := b.p.State(); s.Backend.Err != nil || len(s.Quarantined) != 2 || len(s.InForce.Services) != 20 {
			t.Errorf("error %v, left out: %v", s.Backend.Err, s.Quarantined)
		}
	})
}

// Who plans for long is alive, and who never ends is not.
func TestPlanningMayTakeAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(1, 1)
		stuck := make(chan struct{})
		b := start(t, w, k, nil)
		w.mu.Lock()
		w.planning = stuck
		w.mu.Unlock()
		w.announce()
		settle(50 * time.Second)
		if age := time.Since(b.p.Heartbeat()); age != 0 {
			t.Errorf("within its time: the heartbeat is %v old", age)
		}
		settle(time.Minute)
		if age := time.Since(b.p.Heartbeat()); age < 49*time.Second || age > 50*time.Second {
			t.Errorf("after 110 s, of which it may take 60: the heartbeat is %v old", age)
		}
		close(stuck)
		settle(time.Second)
		if age := time.Since(b.p.Heartbeat()); age != 0 {
			t.Errorf("idle: the heartbeat is %v old", age)
		}
	})
}
