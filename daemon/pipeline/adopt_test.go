package pipeline

import (
	"testing"
	"testing/synctest"
	"time"
)

// If the sources provide no snapshot after a reload, the pipeline still syncs the plan in force, because the kernel may
// have lost the plan's rules.
func TestPlanInForceIsSyncedAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.ready = false
		w.set(1, 1)
		before := w.wanted()
		b := start(t, w, k, func(o *Options) { o.InForce = before })
		settle(adoptAfter - time.Second)
		if k.applies() > 0 {
			t.Fatal("the plan in force is synced at once, though its successor mostly comes soon")
		}
		settle(2 * time.Second)
		if n := k.applies(); n != 1 || !k.holds(before) {
			t.Fatalf("%d Applies: the plan in force was not synced", n)
		}
		k.lose()
		b.p.RequestFull("backend", "lost")
		settle(time.Second)
		if s := b.p.State(); !k.holds(before) || !s.OutOfSync.IsZero() || s.InForce != before {
			t.Errorf("not repaired: %+v", s)
		}
		w.ready = true
		w.set(2, 1)
		w.announce()
		settle(time.Second)
		if s := b.p.State(); len(s.InForce.Services) != 2 || !k.holds(s.InForce) {
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
		b := start(t, w, k, func(o *Options) { o.InForce = before })
		b.p.RequestFull("backend", "lost")
		settle(time.Second)
		if !k.holds(before) {
			t.Error("not repaired")
		}
	})
}
