package pipeline

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPauseAfterSyncEqualsSyncDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		b := start(t, w, k, nil)
		settle(time.Minute)
		k.mu.Lock()
		k.takes = time.Second
		k.mu.Unlock()
		b.kernel.takeChanges()
		for i := range 100 {
			w.set(i, 1)
			w.announce()
			settle(10 * time.Millisecond)
		}
		settle(900 * time.Millisecond)
		if got := b.kernel.takeChanges(); len(got) != 1 || len(got[0].Next.Services) != 1 {
			t.Errorf("during a sync of a second, and the pause after it: %d changes, want the first alone", len(got))
		}
		settle(200 * time.Millisecond)
		if got := b.kernel.takeChanges(); len(got) != 1 || len(got[0].Next.Services) != 100 {
			t.Errorf("after the pause: %d changes, want one with all", len(got))
		}
	})
}

func TestPauseAfterSyncIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		b := start(t, w, k, nil)
		settle(time.Minute)
		k.mu.Lock()
		k.takes = 50 * time.Second
		k.mu.Unlock()
		w.set(1, 1)
		w.announce()
		settle(time.Second)
		w.set(2, 1)
		w.announce()
		settle(49 * time.Second)
		b.kernel.takeChanges()
		settle(maxPause + time.Second)
		if got := b.kernel.takeChanges(); len(got) != 1 {
			t.Errorf("%d changes within %s of a sync of 50 s, want one", len(got), maxPause)
		}
	})
}
