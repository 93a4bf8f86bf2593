package pipeline

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each Change that OnSynced receives starts from the plan in the previous call to OnSynced, regardless of the Changes
// that the stages received.
func TestOnSyncedReportsChangeSinceLastSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(0, 1)
		w.set(1, 1)
		b := start(t, w, k, nil)
		if first := b.synced[0].Change; first.Prev != nil || len(first.Changed) != 2 {
			t.Errorf("the first change follows %v, and has %d ServicePorts", first.Prev, len(first.Changed))
		}
		for i, c := range []struct {
			do               func()
			changed, removed int
		}{
			{func() { w.set(1, 2) }, 1, 0},
			{func() { w.remove(0) }, 0, 1},
			{func() { b.p.RequestFull("backend", "flushed") }, 0, 0},
			{func() { b.p.RequestFull("backend", "flushed"); w.set(2, 1) }, 1, 0},
			{func() { k.refusedVersions[w.set(3, 1)] = true; w.set(4, 1) }, 1, 0},
			{func() { // the backend applies this change in two partial syncs
				w.set(5, 20_000)
				w.set(6, 20_000)
			}, 2, 0},
		} {
			c.do()
			w.announce()
			settle(time.Minute)
			if got := b.synced[len(b.synced)-1].Change; len(got.Changed) != c.changed || len(got.Removed) != c.removed {
				t.Errorf("%d: %d changed, %d removed", i, len(got.Changed), len(got.Removed))
			}
		}
		for i := range b.synced[1:] {
			if b.synced[i+1].Change.Prev != b.synced[i].Change.Next {
				t.Errorf("the change %d does not follow the one before", i+1)
			}
		}
	})
}

func TestIdleFullSyncLogsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(0, 1)
		var log bytes.Buffer
		b := start(t, w, newKernel(t), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) },
			Stage{"follower", newKernel(t)})
		settle(24 * time.Hour)
		if b.p.State().Backend.FullSyncs < 20 || log.Len() > 0 {
			t.Errorf("%d full syncs, log:\n%s", b.p.State().Backend.FullSyncs, log.String())
		}
		b.p.RequestFull("backend", "flushed")
		settle(time.Minute)
		if got := strings.Count(log.String(), "\n"); got != 1 {
			t.Errorf("%d lines for a drift:\n%s", got, log.String())
		}
	})
}
