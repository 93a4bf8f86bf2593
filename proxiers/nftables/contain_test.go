package nftables

import (
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/contain"
)

// If Apply panics during the first sync, the tables in the kernel are incomplete. The next full sync after a panic
// repairs the tables.
func TestFullSyncAfterApplyPanic(t *testing.T) {
	newHost(t)
	broken := true
	p, _ := testProxier(t, func(env *proxiers.Env) {
		env.Progress = func(done, total int) {
			if broken && done > total/3 {
				panic("on purpose")
			}
		}
	})
	full := newPlan(testNode(), manyServices(3000, 5)...)
	err := contain.Call(func() error { return p.Apply(t.Context(), proxiers.NewChange(nil, full)) })
	half := kernelState(t, p)
	if !contain.IsPanic(err) {
		t.Fatalf("Apply ends with %v", err)
	}
	broken = false
	apply(t, p, nil, full)
	repaired := kernelState(t, p)
	forceRecreate(t, p, full)
	if want := kernelState(t, p); repaired != want || half == want {
		t.Errorf("after a full sync: %s; the panic left all: %t", firstDifference(repaired, want), half == want)
	}
}
