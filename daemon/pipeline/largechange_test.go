package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers/plan"
)

// The backend applies a very large change in several partial syncs, beginning with the ServicePorts that have the
// fewest elements. A Service that a user creates during the change does not wait for all partial syncs.
func TestLargeChangeIsAppliedInPortions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(0, 1)
		b := start(t, w, k, nil)
		k.takeChanges()
		k.takes = time.Second
		for i := range 20 {
			w.set(100+i, 10_000) // each ServicePort has 20,001 elements
		}
		w.announce()
		settle(2500 * time.Millisecond)
		w.set(1, 1)
		w.announce()
		settle(2600 * time.Millisecond)
		s := b.p.State()
		if s.AppliedPlan.Find(w.wanted().Services[1].Name, plan.IPv4) == nil {
			t.Errorf("after 2.5 s the small one is not in force, with %d others", len(s.AppliedPlan.Services))
		}
		if s.OutOfSyncSince.IsZero() || b.told() != 1 {
			t.Errorf("in sync with a part: out of sync since %v, told %d times", s.OutOfSyncSince, b.told())
		}
		settle(time.Minute)
		for i, c := range k.takeChanges() {
			if c.Prev == nil || len(c.Changed) > 2 {
				t.Errorf("sync %d is full: %v, with %d ServicePorts", i, c.Prev == nil, len(c.Changed))
			}
		}
		b.wantConverged(t)
		if s := b.p.State(); !s.OutOfSyncSince.IsZero() || b.told() != 2 {
			t.Errorf("in the end out of sync since %v, told %d times", s.OutOfSyncSince, b.told())
		}
	})
}

// Edgeway serves the previous version of a waiting ServicePort, unless another ServicePort receives an address of
// that version.
func TestWaitingServicePortKeepsPreviousVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 3 {
			w.set(i, 1)
		}
		b := start(t, w, k, nil)
		before := w.wanted()
		k.takes = time.Second
		for i := range 3 {
			w.set(i, 20_000)
		}
		w.mu.Lock()
		taker := *before.Services[2]
		taker.Name.Name = "taker"
		taker.Seal()
		w.services["taker"] = &taker
		w.services["s00002"].Frontends[0].Port = 81
		w.services["s00002"].Seal()
		w.mu.Unlock()
		k.takeChanges()
		w.announce()
		settle(1500 * time.Millisecond)
		s := b.p.State()
		if got := s.AppliedPlan.Find(before.Services[1].Name, plan.IPv4); got != before.Services[1] {
			t.Errorf("the one that waits is in force as %v", got)
		}
		if got := s.AppliedPlan.Find(before.Services[2].Name, plan.IPv4); got != nil {
			t.Errorf("the one whose address another has got is in force as %v", got)
		}
		settle(time.Minute)
		b.wantConverged(t)
	})
}
