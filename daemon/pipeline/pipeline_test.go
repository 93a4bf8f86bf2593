package pipeline

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func TestFirstSyncIsFullAndLaterSyncsArePartial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		b := start(t, w, newKernel(t), nil)
		first := b.kernel.takeChanges()
		if len(first) != 1 || first[0].Prev != nil {
			t.Fatalf("first sync: %d changes, want one without Prev", len(first))
		}
		settle(time.Minute)
		w.set(1, 2)
		w.announce()
		synctest.Wait()
		if got := b.kernel.takeChanges(); len(got) != 1 || got[0].Prev != first[0].Next {
			t.Errorf("a change after quiet: %d changes at once, want one with Prev", len(got))
		}
		b.wantConverged(t)
		s := b.p.State()
		if s.Backend.FullSyncs != 1 || s.Backend.PartialSyncs != 1 || !s.OutOfSyncSince.IsZero() {
			t.Errorf("State: %d full, %d partial, out of sync since %v", s.Backend.FullSyncs, s.Backend.PartialSyncs,
				s.OutOfSyncSince)
		}
	})
}

func TestNoSyncBeforeSourcesAreComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.ready = false
		b := start(t, w, newKernel(t), nil, Stage{"follower", newKernel(t)})
		if s := b.p.State(); s.Backend.Name != "backend" || len(s.Followers) != 1 || s.Followers[0].Name != "follower" {
			t.Errorf("the stages before the first sync: %+v", s)
		}
		b.p.RequestFull("backend", "too early")
		settle(time.Hour * 3)
		if got := b.kernel.takeChanges(); len(got) != 0 {
			t.Fatalf("%d changes before there was a snapshot", len(got))
		}
		w.mu.Lock()
		w.ready = true
		w.mu.Unlock()
		w.announce()
		settle(time.Second)
		if got := b.kernel.takeChanges(); len(got) == 0 {
			t.Error("no sync once there was a snapshot")
		}
	})
}

func TestUnchangedPlanIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		w.checks = []*plan.HealthCheck{{Namespace: "default", Name: "lb", Port: 30000}}
		b := start(t, w, newKernel(t), nil)
		b.kernel.takeChanges()
		syncs := len(b.synced)

		w.mu.Lock()
		w.checks = []*plan.HealthCheck{{Namespace: "default", Name: "lb", Port: 30000}}
		w.mu.Unlock()
		w.announce()
		settle(time.Second)
		if got := b.kernel.takeChanges(); len(got) != 0 {
			t.Errorf("%d changes for an equal plan", len(got))
		}
		if len(b.synced) != syncs+1 || !b.synced[syncs].Unchanged {
			t.Error("an equal plan is synced, and says that nothing changed")
		}
		for what, change := range map[string]func(){
			"health check": func() { w.checks = []*plan.HealthCheck{{Namespace: "default", Name: "lb", Port: 30001}} },
			"node":         func() { w.hostNode = &plan.Node{Name: "other"} },
		} {
			w.mu.Lock()
			change()
			w.mu.Unlock()
			w.node <- struct{}{}
			settle(time.Second)
			if got := b.kernel.takeChanges(); len(got) != 1 || got[0].Prev == nil {
				t.Errorf("changed %s: %d changes, want one partial", what, len(got))
			}
		}
	})
}

func TestFailedSyncIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		k := newKernel(t)
		k.fault = func(proxiers.Change) error { return errTransport }
		b := start(t, w, k, nil)
		began := time.Now()
		settle(250 * time.Millisecond)
		if n := len(k.takeChanges()); n != 2 {
			t.Errorf("%d tries within 250 ms, want 2", n)
		}
		settle(10 * time.Minute)
		if n := len(k.takeChanges()); n < 20 || n > 40 {
			t.Errorf("%d tries in 10 minutes, want about 25 (30 s apart)", n)
		}
		s := b.p.State()
		if s.Backend.Err != errTransport.Error() || s.Backend.Since.After(began) ||
			s.OutOfSyncSince.IsZero() || s.Synced() {
			t.Errorf("State of a failing first sync: %+v", s.Backend)
		}
		w.set(1, 2) // a change does not end the back-off
		w.announce()
		synctest.Wait()
		if n := len(k.takeChanges()); n != 0 {
			t.Errorf("a change during the back-off was applied %d times", n)
		}
		k.mu.Lock()
		k.fault = nil
		k.mu.Unlock()
		settle(31 * time.Second)
		got := k.takeChanges()
		if len(got) != 1 || got[0].Prev != nil {
			t.Fatalf("recovery: %d changes, want one full", len(got))
		}
		b.wantConverged(t)
		if s := b.p.State(); s.Backend.Err != "" || !s.OutOfSyncSince.IsZero() || !s.Synced() {
			t.Errorf("State after recovery: %+v", s.Backend)
		}
	})
}

func TestDriftDuringApplyIsRepairedAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		k := newKernel(t)
		b := start(t, w, k, nil)
		settle(time.Minute)
		k.takeChanges()
		k.takes = time.Second
		w.set(1, 2)
		w.announce()
		settle(100 * time.Millisecond)
		k.mu.Lock()
		clear(k.state)
		k.drifted = true
		k.mu.Unlock()
		b.p.RequestFull("backend", "table deleted")
		settle(3 * time.Second)
		got := k.takeChanges()
		if len(got) != 2 || got[0].Prev == nil || got[1].Prev != nil {
			t.Fatalf("%d changes, want a partial and then a full one", len(got))
		}
		b.wantConverged(t)
		if s := b.p.State(); s.Backend.DriftRepairs != 1 || s.Backend.DriftReason != "table deleted" {
			t.Errorf("State: %d drift repairs, reason %q", s.Backend.DriftRepairs, s.Backend.DriftReason)
		}
	})
}

func TestRepeatedDriftRepairsSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b := start(t, w, newKernel(t), nil)
		settle(time.Minute)
		b.kernel.takeChanges()
		b.p.RequestFull("backend", "flushed")
		settle(20 * time.Millisecond)
		if got := b.kernel.takeChanges(); len(got) != 1 || got[0].Prev != nil {
			t.Fatalf("first drift: %d changes at once, want one full", len(got))
		}
		for range 600 {
			b.p.RequestFull("backend", "flushed again")
			settle(100 * time.Millisecond)
		}
		if n := len(b.kernel.takeChanges()); n < 5 || n > 12 {
			t.Errorf("a minute of fighting: %d full syncs, want a handful", n)
		}
		settle(2 * time.Minute)
		b.kernel.takeChanges()
		b.p.RequestFull("backend", "flushed later")
		settle(20 * time.Millisecond)
		if got := b.kernel.takeChanges(); len(got) != 1 {
			t.Errorf("drift after quiet: %d changes at once, want one", len(got))
		}
	})
}

func TestPeriodicFullSyncHasJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld(), newKernel(t), nil)
		b.kernel.takeChanges()
		settle(53 * time.Minute)
		if got := b.kernel.takeChanges(); len(got) != 0 {
			t.Errorf("%d changes before the period was over", len(got))
		}
		settle(23 * time.Hour)
		n := 0
		for _, c := range b.kernel.takeChanges() {
			if c.Prev == nil {
				n++
			}
		}
		if n < 20 || n > 27 {
			t.Errorf("%d full syncs in a day, want about 24", n)
		}
	})
}

func TestFollowersGetPlanInForceAndFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		bad, good := newKernel(t), newKernel(t)
		bad.fault = func(proxiers.Change) error { return errTransport }
		k := newKernel(t)
		k.fault = func(proxiers.Change) error { return errTransport }
		b := start(t, w, k, nil, Stage{"conntrack", bad}, Stage{"healthcheck", good})
		settle(time.Minute)
		if n := len(bad.takeChanges()) + len(good.takeChanges()); n != 0 {
			t.Fatalf("followers ran %d times before the backend succeeded", n)
		}
		k.mu.Lock()
		k.fault = nil
		k.mu.Unlock()
		settle(31 * time.Second)
		k.takeChanges()
		if got := good.takeChanges(); len(got) != 1 || got[0].Prev != nil {
			t.Errorf("healthcheck: %d changes, want one", len(got))
		}
		bad.takeChanges()
		w.set(1, 2)
		w.announce()
		settle(time.Minute)
		if got := k.takeChanges(); len(got) != 1 || got[0].Prev == nil {
			t.Errorf("a failing follower: the backend got %d changes, want one partial", len(got))
		}
		if got := bad.takeChanges(); len(got) < 2 || got[0].Prev != nil {
			t.Errorf("conntrack was retried %d times, want at least 2 full", len(got))
		}
		s := b.p.State()
		if s.Followers[0].Err == "" || s.Followers[1].Err != "" || s.Backend.Err != "" || !s.OutOfSyncSince.IsZero() {
			t.Errorf("State: %+v", s)
		}
		bad.mu.Lock()
		bad.fault = nil
		bad.mu.Unlock()
		settle(time.Minute)
		if !bad.holds(w.wanted()) {
			t.Error("conntrack did not catch up")
		}
	})
}

// On a slow single-board computer, a sync may take longer than the watchdog's limit. A stage counts as stuck only if it
// exceeds its own time limit.
func TestHeartbeatDuringLongSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		k := newKernel(t)
		b := start(t, w, k, nil)
		settle(time.Hour)
		if age := time.Since(b.p.Heartbeat()); age != 0 {
			t.Errorf("idle: the heartbeat is %v old", age)
		}
		k.takes = time.Hour
		w.set(1, 2)
		w.announce()
		settle(50 * time.Second)
		if age := time.Since(b.p.Heartbeat()); age != 0 {
			t.Errorf("within its time: the heartbeat is %v old", age)
		}
		b.p.Progress(3, 10)
		s := b.p.State()
		if s.Done != 3 || s.Total != 10 || s.Backend.RunningSince.IsZero() {
			t.Errorf("progress shows in State: %+v", s)
		}
		settle(11 * time.Second)
		if s := b.p.State(); !strings.Contains(s.Backend.Err, context.DeadlineExceeded.Error()) {
			t.Errorf("after a minute: error %v, want a deadline", s.Backend.Err)
		}
	})
}

func TestHeartbeatAgesWhenStageIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		stuck := make(chan struct{})
		k := newKernel(t)
		b := start(t, w, k, nil)
		k.fault = func(proxiers.Change) error { <-stuck; return nil }
		w.set(1, 2)
		w.announce()
		settle(3 * time.Minute)
		if age := time.Since(b.p.Heartbeat()); age < 119*time.Second || age > 2*time.Minute {
			t.Errorf("stuck for 3 minutes, of which it may take one: the heartbeat is %v old", age)
		}
		close(stuck)
		settle(time.Second)
		if age := time.Since(b.p.Heartbeat()); age != 0 {
			t.Errorf("not stuck any more: the heartbeat is %v old", age)
		}
	})
}

func TestTriggersAreReportedOncePlanIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.triggers = []time.Time{time.Now().Add(-time.Hour)} // before the start, so not part of the latency
		k := newKernel(t)
		b := start(t, w, k, nil)
		settle(time.Second)
		fail := true
		k.fault = func(proxiers.Change) error {
			if fail {
				return errTransport
			}
			return nil
		}
		for i := range 2 {
			w.set(i, 1)
			w.mu.Lock()
			w.triggers = append(w.triggers, time.Now())
			w.mu.Unlock()
			w.announce()
			settle(time.Millisecond)
		}
		k.mu.Lock()
		fail = false
		k.mu.Unlock()
		settle(time.Second)
		last := b.synced[len(b.synced)-1]
		if len(b.synced[0].Triggers) != 0 || len(last.Triggers) != 2 || !last.Full {
			t.Errorf("triggers: %d at first, %d after the recovery", len(b.synced[0].Triggers), len(last.Triggers))
		}
	})
}

// After a reload, which creates a new planner, a Service keeps its addresses.
func TestFirstPlanBuildsOnPlanInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		left := w.wanted()
		left.Generation = 7
		b := start(t, w, newKernel(t), func(o *Options) { o.AppliedPlan = left })
		if s := b.p.State(); s.Plan.Generation != 8 {
			t.Errorf("the plan after number 7 has number %d", s.Plan.Generation)
		}
	})
}

func TestEarlierPlanInForceCountsUntilFirstSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.ready = false
		w.set(1, 1)
		left := &plan.Plan{Node: &plan.Node{}}
		b := start(t, w, newKernel(t), func(o *Options) { o.AppliedPlan = left })
		settle(time.Second)
		if s := b.p.State(); !s.Synced() || s.AppliedPlan != left {
			t.Error("before the first sync, State does not tell of what is in force")
		}
		w.mu.Lock()
		w.ready = true
		w.mu.Unlock()
		w.announce()
		synctest.Wait()
		if got := b.kernel.takeChanges(); len(got) != 1 || got[0].Prev != nil {
			t.Errorf("%d changes, want one without Prev: the memory of another pipeline proves nothing", len(got))
		}
		b.wantConverged(t)
	})
}
