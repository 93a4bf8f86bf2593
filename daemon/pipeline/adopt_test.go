package pipeline

import (
	"testing"
	"testing/synctest"
	"time"
)

// If the sources provide no snapshot after a reload, the pipeline still syncs Options.AppliedPlan, because rules of
// that plan may be missing from the kernel.
func TestPlanInForceIsSyncedAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.ready = false
		w.set(1, 1)
		before := w.wanted()
		b := start(t, w, k, func(o *Options) { o.AppliedPlan = before })
		settle(adoptDelay - time.Second)
		if k.applies() > 0 {
			t.Fatal("the plan in force is synced at once, though its successor mostly comes soon")
		}
		settle(2 * time.Second)
		if n := k.applies(); n != 1 || !k.holds(before) {
			t.Fatalf("%d Applies: the plan in force was not synced", n)
		}
		k.removeAll()
		b.p.RequestFull("backend", "lost")
		settle(time.Second)
		if s := b.p.State(); !k.holds(before) || !s.OutOfSyncSince.IsZero() || s.AppliedPlan != before {
			t.Errorf("not repaired: %+v", s)
		}
		w.ready = true
		w.set(2, 1)
		w.announce()
		settle(time.Second)
		if s := b.p.State(); len(s.AppliedPlan.Services) != 2 || !k.holds(s.AppliedPlan) {
			t.Error("the first plan was not synced")
		}
	})
}

func TestDriftBeforeFirstPlanSyncsPlanInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.ready = false
		w.set(1, 1)
		before := w.wanted()
		b := start(t, w, k, func(o *Options) { o.AppliedPlan = before })
		b.p.RequestFull("backend", "lost")
		settle(time.Second)
		if !k.holds(before) {
			t.Error("not repaired")
		}
	})
}
