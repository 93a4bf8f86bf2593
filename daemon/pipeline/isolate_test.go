package pipeline

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func TestRefusedServicePortIsFoundByBisection(t *testing.T) {
	for _, bad := range []int{0, 1, 499, 500, 998, 999} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, k := newWorld(), newKernel(t)
				for i := range 1000 {
					name := w.set(i, 1)
					if i == bad {
						k.refusedVersions[name] = true
					}
				}
				b := start(t, w, k, nil)
				if n := len(k.takeChanges()); n > 23 {
					t.Errorf("%d applies, want at most 2 log2(1000) + 3", n)
				}
				b.wantConverged(t)
				s := b.p.State()
				if len(s.Quarantined) != 1 || s.Quarantined[0].Name.Name != fmt.Sprintf("s%05d", bad) ||
					len(s.Problems()) != 1 {
					t.Errorf("quarantined: %+v", s.Quarantined)
				}
				if s.Backend.Err != "" || !s.OutOfSyncSince.IsZero() || !s.Synced() {
					t.Errorf("the rest is in sync: %+v", s.Backend)
				}
			})
		})
	}
}

func TestRefusedChangeIsFoundWithoutFullSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 1000 {
			w.set(i, 1)
		}
		b := start(t, w, k, nil)
		k.takeChanges()
		k.refusedVersions[w.set(7, 2)] = true
		w.announce()
		settle(time.Second)
		// The five Applies are a partial sync, a full sync, a sync with the previous version, a sync with all
		// ServicePorts to confirm the search, and another sync with the previous version.
		if n := len(k.takeChanges()); n != 5 {
			t.Errorf("%d applies, want 5", n)
		}
		b.wantConverged(t)

		w.set(8, 2) // the pipeline still applies other changes in partial syncs
		w.announce()
		settle(time.Second)
		if got := k.takeChanges(); len(got) != 1 || got[0].Prev == nil {
			t.Errorf("another change: %d applies, want one partial", len(got))
		}
		b.wantConverged(t)

		k.mu.Lock()
		clear(k.refusedVersions)
		k.mu.Unlock()
		w.set(7, 3) // Edgeway tries a changed ServicePort again
		w.announce()
		settle(time.Second)
		if got := k.takeChanges(); len(got) != 1 || got[0].Prev == nil {
			t.Errorf("the corrected Service: %d applies, want one partial", len(got))
		}
		b.wantConverged(t)
		if s := b.p.State(); len(s.Quarantined) != 0 || len(s.Problems()) != 0 {
			t.Errorf("still quarantined: %+v", s.Quarantined)
		}
	})
}

func TestServicePortNamedByKernelIsLeftOut(t *testing.T) {
	for _, bad := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w, k := newWorld(), newKernel(t)
			k.namesPort = true
			for i := range 1000 {
				if name := w.set(i, 1); i%300 == 7 && i/300 < bad {
					k.refusedVersions[name] = true
				}
			}
			b := start(t, w, k, nil)
			if n := len(k.takeChanges()); n != bad+1 {
				t.Errorf("%d applies for %d refused ServicePorts, want %d", n, bad, bad+1)
			}
			b.wantConverged(t)
			if s := b.p.State(); len(s.Quarantined) != bad || s.Quarantined[0].Name.Name != "s00007" {
				t.Errorf("quarantined: %+v", s.Quarantined)
			}
			k.refusedVersions[w.set(9, 2)] = true // the kernel refuses a partial change
			w.announce()
			settle(time.Second)
			if n := len(k.takeChanges()); n != 3 {
				t.Errorf("%d applies for a change, want 3", n)
			}
			b.wantConverged(t)
		})
	}
}

func TestSearchContinuesAfterWrongName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 100 {
			w.set(i, 1)
		}
		k.refusedVersions[w.set(42, 2)] = true
		k.fault = func(c proxiers.Change) error {
			if err := k.commit(c); err != nil {
				wrong := slices.DeleteFunc(slices.Clone(c.Next.Services),
					func(svc *plan.ServicePort) bool { return svc.Name.Name != "s00000" })
				return &proxiers.Refusal{Services: wrong, Err: err}
			}
			return nil
		}
		b := start(t, w, k, nil)
		settle(time.Minute)
		b.wantConverged(t)
		if s := b.p.State(); len(s.Quarantined) != 1 || s.Quarantined[0].Name.Name != "s00042" {
			t.Errorf("quarantined: %+v", s.Quarantined)
		}
	})
}

func TestSeveralRefusedServicePortsAreFound(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := random(seed)
			w, k := newWorld(), newKernel(t)
			for i := range 200 {
				if name := w.set(i, 1); r.IntN(20) == 0 {
					k.refusedVersions[name] = true
				}
			}
			b := start(t, w, k, nil)
			b.wantConverged(t)
			if s := b.p.State(); len(s.Quarantined) != len(k.refusedVersions) {
				t.Errorf("seed %d: %d quarantined, want %d", seed, len(s.Quarantined), len(k.refusedVersions))
			}
		})
	}
}

func TestManyRefusedServicePortsAreFoundInRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 250 {
			k.refusedVersions[w.set(i, 1)] = true
		}
		b := start(t, w, k, nil)
		if s := b.p.State(); s.Backend.Err == "" || len(s.Quarantined) != maxBlamed {
			t.Errorf("first round: %d quarantined, error %v", len(s.Quarantined), s.Backend.Err)
		}
		settle(time.Minute)
		if s := b.p.State(); s.Backend.Err != "" || len(s.Quarantined) != 250 {
			t.Errorf("in the end: %d quarantined, error %v", len(s.Quarantined), s.Backend.Err)
		}
		b.wantConverged(t)
	})
}

func TestRefusalOfEverythingQuarantinesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 100 {
			w.set(i, 1)
		}
		refuse := true
		k.fault = func(proxiers.Change) error {
			if refuse {
				return fmt.Errorf("base chain: %w", proxiers.ErrRefused)
			}
			return nil
		}
		b := start(t, w, k, nil)
		if s := b.p.State(); s.Backend.Err == "" || len(s.Quarantined) != 0 {
			t.Errorf("%d quarantined, error %v", len(s.Quarantined), s.Backend.Err)
		}
		k.mu.Lock()
		refuse = false
		k.mu.Unlock()
		settle(time.Minute)
		b.wantConverged(t)
	})
}

func TestRefusedServicePortIsRetriedAtFullSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 64 {
			w.set(i, 1)
		}
		k.refusedVersions[w.set(9, 1)] = true
		b := start(t, w, k, nil)
		k.takeChanges()
		b.p.RequestFull("backend", "drift")
		settle(time.Second)
		if got := k.takeChanges(); len(got) != 1 || len(got[0].Next.Services) != 63 {
			t.Errorf("drift: %d applies, want one, without the refused", len(got))
		}
		settle(67 * time.Minute)
		if n := len(k.takeChanges()); n != 4 {
			t.Errorf("periodic full sync: %d applies, want 4: all, all but one, all to confirm it, all but one", n)
		}
		b.wantConverged(t)
		k.mu.Lock()
		clear(k.refusedVersions)
		k.mu.Unlock()
		settle(67 * time.Minute)
		b.wantConverged(t)
		if s := b.p.State(); len(s.Quarantined) != 0 {
			t.Errorf("still quarantined: %+v", s.Quarantined)
		}
	})
}

func TestRefusedNewVersionKeepsPreviousVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 100 {
			w.set(i, 1)
		}
		b := start(t, w, k, nil)
		accepted := w.services["s00007"]
		k.refusedVersions[w.set(7, 2)] = true
		w.announce()
		settle(time.Second)
		if got := k.state[key(accepted)]; got != accepted.Digest {
			t.Fatal("the kernel does not hold the previous version")
		}
		s := b.p.State()
		if len(s.Quarantined) != 1 || !s.Quarantined[0].Previous || s.Backend.Err != "" {
			t.Errorf("quarantined: %+v, error %v", s.Quarantined, s.Backend.Err)
		}
		k.takeChanges()
		w.set(8, 2)
		w.announce()
		settle(time.Second)
		if got := k.takeChanges(); len(got) != 1 || len(got[0].Changed) != 1 {
			t.Errorf("another change: %d applies, want one of one ServicePort", len(got))
		}

		// Another Service receives the address of the previous version, so Edgeway stops serving that version.
		other := *w.services["s00008"]
		other.Frontends = slices.Clone(accepted.Frontends)
		other.Seal()
		w.mu.Lock()
		w.services["s00008"] = &other
		w.mu.Unlock()
		w.announce()
		settle(time.Second)
		if _, held := k.state[key(accepted)]; held {
			t.Error("two Services have one address")
		}
		if s := b.p.State(); len(s.Quarantined) != 1 || s.Quarantined[0].Previous {
			t.Errorf("quarantined: %+v", s.Quarantined)
		}
		b.wantConverged(t)
		w.remove(7)
		w.announce()
		settle(time.Second)
		b.wantConverged(t)
		if s := b.p.State(); len(s.Quarantined) != 0 {
			t.Errorf("still quarantined: %+v", s.Quarantined)
		}
	})
}

// If another Service receives an address of a ServicePort's previous version, Edgeway removes the previous version, and
// does not restore it while any version of the other Service has that address.
func TestDisplacedPreviousVersionDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 10 {
			w.set(i, 1)
		}
		b := start(t, w, k, nil)
		first := w.services["s00007"]
		put := func(name, addr string, refuse bool) *plan.ServicePort {
			s := *w.services[name]
			s.Frontends = []plan.Frontend{{Addr: netip.MustParseAddr(addr), Port: 80}}
			s.Seal()
			k.mu.Lock()
			k.refusedVersions[version(&s)] = refuse
			k.mu.Unlock()
			w.mu.Lock()
			w.services[name] = &s
			w.mu.Unlock()
			w.announce()
			settle(time.Second)
			return &s
		}
		put("s00007", "10.96.1.7", true) // Edgeway still serves 10.96.0.7
		second := put("s00008", "10.96.0.7", false)
		put("s00008", "10.96.1.8", true) // Edgeway still serves 10.96.0.7
		if k.state[key(second)] != second.Digest {
			t.Error("the kernel does not hold the version that it accepted last")
		}
		if k.state[key(first)] == first.Digest {
			t.Error("a version that was no longer served is back")
		}
		b.wantConverged(t)
	})
}

func TestRefusedPreviousVersionIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 100 {
			w.set(i, 1)
		}
		first := w.set(7, 1)
		b := start(t, w, k, nil)
		k.mu.Lock()
		k.refusedVersions[first] = true
		k.mu.Unlock()
		k.refusedVersions[w.set(7, 2)] = true
		w.set(9, 2)
		w.announce()
		settle(time.Minute)
		b.wantConverged(t)
		if _, held := k.state[key(w.services["s00007"])]; held {
			t.Error("a refused version is held")
		}
		if s := b.p.State(); len(s.Quarantined) != 1 || s.Quarantined[0].Previous || s.Backend.Err != "" {
			t.Errorf("quarantined: %+v, error %v", s.Quarantined, s.Backend.Err)
		}
	})
}

// If no ServicePort causes the refusal, the pipeline stops its search after a few syncs instead of searching at each
// retry.
func TestUnrelatedRefusalIsNotBisected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, k := newWorld(), newKernel(t)
		for i := range 10_000 {
			w.set(i, 1)
		}
		k.fault = func(proxiers.Change) error { return fmt.Errorf("base chain: %w", proxiers.ErrRefused) }
		var log strings.Builder
		start(t, w, k, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		if n := len(k.takeChanges()); n > 4 {
			t.Errorf("%d applies before it is clear, want at most 4: all, both halves, none", n)
		}
		settle(2 * time.Minute)
		if n := strings.Count(log.String(), "searching"); n != 1 {
			t.Errorf("a fault that stays is logged %d times", n)
		}
	})
}

func TestTransientRefusalQuarantinesNothing(t *testing.T) {
	for passes := range 12 {
		t.Run(fmt.Sprint(passes, " refused"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, k := newWorld(), newKernel(t)
				for i := range 19 {
					w.set(i, 1)
				}
				refused := 0
				k.fault = func(c proxiers.Change) error {
					if refused < passes && len(c.Next.Services) > 0 {
						refused++
						return fmt.Errorf("a moment of weakness: %w", proxiers.ErrRefused)
					}
					return nil
				}
				b := start(t, w, k, nil)
				for range 2 {
					settle(time.Minute)
					b.wantConverged(t)
					if s := b.p.State(); len(s.Quarantined) != 0 {
						t.Errorf("left out: %v", s.Quarantined)
					}
					k.mu.Lock()
					refused = 0
					k.mu.Unlock()
					w.set(3, 2) // this ServicePort is the only suspect in the second round
					w.announce()
				}
			})
		})
	}
}
