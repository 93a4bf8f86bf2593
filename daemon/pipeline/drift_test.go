package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers"
)

// If another program undoes each repair, State.OutOfSyncSince stays at the time of the first drift, even while the next
// repair is delayed.
func TestRepeatedDriftIsOutOfSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(1, 1)
		b := start(t, w, k, nil)
		settle(time.Minute)
		k.mu.Lock()
		k.drifted = true
		k.fault = func(proxiers.Change) error {
			b.p.RequestFull("backend", "lost again")
			return nil
		}
		k.mu.Unlock()
		began := time.Now()
		b.p.RequestFull("backend", "lost")
		settle(3 * time.Minute)
		if s := b.p.State(); s.OutOfSyncSince.IsZero() || s.OutOfSyncSince.Sub(began) > time.Second {
			t.Errorf("out of sync since %s, want since %s", s.OutOfSyncSince, began)
		}
		k.mu.Lock()
		k.fault = nil
		k.mu.Unlock()
		settle(time.Minute)
		if s := b.p.State(); !s.OutOfSyncSince.IsZero() || !k.holds(s.AppliedPlan) {
			t.Errorf("not in sync again: %+v", s)
		}
	})
}

func TestDelayedDriftRepairIsOutOfSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(1, 1)
		b := start(t, w, k, nil)
		settle(time.Second)
		for range 12 { // the pause between repairs grows to 30 s
			b.p.RequestFull("backend", "lost")
			settle(time.Millisecond)
			if s := b.p.State(); k.drifted && s.OutOfSyncSince.IsZero() {
				t.Fatal("a drift that waits is not told")
			}
			k.mu.Lock()
			k.drifted = true
			k.mu.Unlock()
		}
	})
}
