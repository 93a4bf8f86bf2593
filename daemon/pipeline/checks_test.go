package pipeline

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadEndpointTriggersPartialSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 2)
		died := make(chan struct{}, 1)
		b := start(t, w, newKernel(t), func(o *Options) { o.Checks = nodeChanges{died} })
		settle(time.Minute)
		b.kernel.takeChanges()
		w.set(1, 1)
		died <- struct{}{}
		synctest.Wait()
		if got := b.kernel.takeChanges(); len(got) != 1 || got[0].Prev == nil {
			t.Errorf("%d changes at once, want one that is partial", len(got))
		}
		b.wantConverged(t)
	})
}
