package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers"
)

// After any sequence of changes, failures, refusals and drift, the fake kernel reaches the wanted state. At each step,
// the fake kernel verifies the Applier contract.
func TestRandomFaultsConverge(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := random(seed)
			w, k, follower := newWorld(), newKernel(t), newKernel(t)
			faults := func(k *kernel) func(proxiers.Change) error {
				r := random(seed + 1000) // a separate generator, because another goroutine uses it
				return func(c proxiers.Change) error {
					switch r.IntN(10) {
					case 0:
						return errTransport
					case 1: // apply only some changes, as IPVS may do
						for name := range k.state {
							if r.IntN(2) == 0 {
								delete(k.state, name)
							}
						}
						return errTransport
					}
					return nil
				}
			}
			k.fault, follower.fault = faults(k), faults(follower)
			b := start(t, w, k, nil, Stage{"follower", follower})
			for range 300 {
				i := r.IntN(50)
				switch r.IntN(8) {
				case 0:
					w.remove(i)
				case 1:
					k.mu.Lock()
					clear(k.state)
					k.drifted = true
					k.mu.Unlock()
					b.p.RequestFull("backend", "flushed")
				case 2:
					name := w.set(i, r.IntN(5))
					k.mu.Lock()
					k.refusedVersions[name] = !k.refusedVersions[name]
					clear(k.refusalCounts) // from now on, the kernel may accept refused versions
					k.takes = time.Duration(r.IntN(50)) * time.Millisecond
					k.mu.Unlock()
				default:
					w.set(i, r.IntN(5))
				}
				w.announce()
				settle(time.Duration(r.IntN(2000)) * time.Millisecond)
			}
			k.mu.Lock()
			k.fault = nil
			for name := range k.refusedVersions {
				if !k.refusedVersions[name] {
					delete(k.refusedVersions, name)
				}
			}
			k.mu.Unlock()
			follower.mu.Lock()
			follower.fault = nil
			follower.mu.Unlock()
			settle(70 * time.Minute) // long enough for a periodic full sync, which retries refused versions
			b.wantConverged(t)
			s := b.p.State()
			if !equal(contents(s.AppliedPlan), follower.state) {
				t.Error("the follower does not hold what is in force")
			}
			if s.Backend.Err != "" || s.Followers[0].Err != "" || !s.OutOfSyncSince.IsZero() {
				t.Errorf("State: %v, %v, out of sync since %v", s.Backend.Err, s.Followers[0].Err, s.OutOfSyncSince)
			}
			if t.Failed() {
				t.Log("seed", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}
