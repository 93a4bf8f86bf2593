package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func panicsOn(k *kernel, name string) {
	k.fault = func(c proxiers.Change) error {
		if i := slices.IndexFunc(c.Next.Services,
			func(svc *plan.ServicePort) bool { return svc.Name.Name == name }); i >= 0 {
			panic("index of " + c.Next.Services[i].Name.Name)
		}
		return k.commit(c)
	}
}

func withParts(o *Options) { o.Parts = contain.New(slog.New(slog.DiscardHandler)) }

// Edgeway leaves out a ServicePort that causes a panic in the backend or a follower, names it in a fault, and serves
// all other ServicePorts.
func TestServicePortThatPanicsIsLeftOut(t *testing.T) {
	for _, stage := range []string{"backend", "follower"} {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, backend, follower := newWorld(), newKernel(t), newKernel(t)
				for i := range 100 {
					w.set(i, 1)
				}
				panicsOn(map[string]*kernel{"backend": backend, "follower": follower}[stage], "s00042")
				b := start(t, w, backend, withParts, Stage{"follower", follower})
				settle(time.Second)
				s := b.p.State()
				if len(s.Quarantined) != 1 || s.Quarantined[0].Name.Name != "s00042" ||
					!strings.Contains(s.Quarantined[0].Err, ": index of s00042") {
					t.Fatalf("left out: %+v", s.Quarantined)
				}
				if problems := s.Problems(); len(problems) != 1 || problems[0].Object.Name != "s00042" {
					t.Errorf("problems %v", problems)
				}
				if len(s.AppliedPlan.Services) != 99 ||
					!backend.holds(s.AppliedPlan) || !follower.holds(s.AppliedPlan) {
					t.Errorf("%d ServicePorts are in force", len(s.AppliedPlan.Services))
				}
				if faults := b.opts.Parts.Faults(); len(faults) != 0 {
					t.Errorf("the stage is to blame: %+v", faults)
				}

				w.remove(42)
				w.set(43, 2)
				w.announce()
				settle(time.Second)
				if s := b.p.State(); len(s.Problems()) != 0 || !backend.holds(s.Plan) || !follower.holds(s.Plan) {
					t.Errorf("problems %v after the object is gone", s.Problems())
				}
			})
		})
	}
}

// If a change causes a panic only in a partial sync, the pipeline applies the change in a full sync and leaves out no
// ServicePort.
func TestPanicInPartialSyncTriggersFullSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		w.set(1, 1)
		w.set(2, 1)
		b := start(t, w, k, withParts)
		k.mu.Lock()
		k.fault = func(c proxiers.Change) error {
			if c.Prev != nil {
				panic("partial")
			}
			return nil
		}
		k.mu.Unlock()
		k.takeChanges()
		w.set(1, 2)
		w.announce()
		settle(time.Second)
		if got := k.takeChanges(); len(got) != 2 || got[1].Prev != nil {
			t.Errorf("%d applies, want a partial and a full one", len(got))
		}
		b.wantConverged(t)
		if s := b.p.State(); s.Backend.Err != "" || len(s.Quarantined)+len(b.opts.Parts.Faults()) != 0 {
			t.Errorf("error %v, left out %v, faults %v", s.Backend.Err, s.Quarantined, b.opts.Parts.Faults())
		}
	})
}

// run starts a pipeline as the daemon does, and returns a channel for the pipeline's error.
func run(t *testing.T, w *world, planner func(*tracker.Snapshot, *plan.Plan) (*plan.Plan, []fault.Fault),
	stages ...Stage,
) (*Pipeline, <-chan error) {
	parts := contain.New(slog.New(slog.DiscardHandler))
	p := New(Options{
		Logger: slog.New(slog.DiscardHandler), Tracker: w, Node: nodeChanges{w.node}, Plan: planner,
		Checks: nodeChanges{}, FullSyncInterval: time.Hour, Parts: parts, OnApplied: func(ApplyResult) {},
		OnSynced: func(*tracker.Snapshot, *plan.Plan, SyncResult) {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	failed := make(chan error, 1)
	go func() {
		failed <- parts.Run(ctx, "pipeline", func(ctx context.Context) error {
			return p.Run(ctx, stages[0],
				stages[1:]...)
		})
	}()
	synctest.Wait()
	return p, failed
}

// If a stage panics with every plan, the pipeline pauses and retries the stage. The other stages keep running until the
// daemon exits after the stage's third panic.
func TestThirdStagePanicEndsDaemon(t *testing.T) {
	for _, stage := range []string{"backend", "follower"} {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, backend, follower := newWorld(), newKernel(t), newKernel(t)
				w.set(1, 1)
				broken := map[string]*kernel{"backend": backend, "follower": follower}[stage]
				broken.fault = func(proxiers.Change) error { panic("always") }
				begin := time.Now()
				p, failed := run(t, w, w.plan, Stage{"backend", backend}, Stage{"follower", follower})
				if s := p.State(); len(s.Quarantined) != 0 || s.Synced() != (stage == "follower") {
					t.Errorf("left out %v, synced %t", s.Quarantined, s.Synced())
				}
				w.set(2, 1)
				w.announce()
				settle(time.Second)
				if stage == "follower" && !backend.holds(w.wanted()) {
					t.Error("the backend does not go on")
				}
				if err := <-failed; !contain.IsPanic(err) || !strings.Contains(err.Error(), "stage "+stage) ||
					time.Since(begin) < 2*contain.Pause {
					t.Errorf("ends after %s with %v", time.Since(begin), err)
				}
			})
		})
	}
}

type tender struct {
	*kernel
	work func()
	due  time.Time
}

func (k *tender) Due() time.Time { return k.due }
func (k *tender) Maintain(context.Context) error {
	k.work()
	return nil
}

// After a panic in deferred work, the pipeline treats the kernel's state as unknown.
func TestDeferredWorkPanicTriggersFullSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, backend := newWorld(), newKernel(t)
		w.set(1, 1)
		follower := &tender{kernel: newKernel(t), due: time.Now()}
		calls := 0
		follower.work = func() {
			if calls++; calls == 1 {
				panic("once")
			}
			follower.due = time.Time{}
		}
		run(t, w, w.plan, Stage{"backend", backend}, Stage{"follower", follower})
		settle(contain.Pause + time.Second)
		if got := follower.takeChanges(); calls != 2 || len(got) != 2 || got[1].Prev != nil {
			t.Errorf("%d calls, %d applies, want a second full sync", calls, len(got))
		}
		if n := len(backend.takeChanges()); n != 1 {
			t.Errorf("the backend is synced %d times", n)
		}
	})
}

func TestRepeatedDeferredWorkPanicEndsDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set(1, 1)
		follower := &tender{kernel: newKernel(t), due: time.Now(), work: func() { panic("always") }}
		_, failed := run(t, w, w.plan, Stage{"backend", newKernel(t)}, Stage{"follower", follower})
		if err := <-failed; !contain.IsPanic(err) {
			t.Error(err)
		}
	})
}

// After a panic in the loop itself, the pipeline syncs all stages again.
func TestLoopRestartsAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, backend, follower := newWorld(), newKernel(t), newKernel(t)
		w.set(1, 1)
		broken := false
		p, _ := run(t, w, func(s *tracker.Snapshot, prev *plan.Plan) (*plan.Plan, []fault.Fault) {
			if broken {
				broken = false
				panic("once")
			}
			return w.plan(s, prev)
		}, Stage{"backend", backend}, Stage{"follower", follower})
		backend.takeChanges()
		follower.takeChanges()
		broken = true
		w.set(2, 1)
		w.announce()
		settle(contain.Pause + time.Second)
		for _, k := range []*kernel{backend, follower} {
			if got := k.takeChanges(); len(got) != 1 || got[0].Prev != nil || !k.holds(w.wanted()) {
				t.Errorf("%d applies, want one full sync", len(got))
			}
		}
		if s := p.State(); len(s.Followers) != 1 || !s.OutOfSyncSince.IsZero() {
			t.Errorf("state %+v", s)
		}
	})
}
