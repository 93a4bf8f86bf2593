package nftables

import (
	"testing"
	"time"

	"edgeway/proxiers/plan"
)

func TestFirstSyncInChunks(t *testing.T) {
	newHost(t)
	p, drift := newProxier(t)
	full := newPlan(testNode(), manyServices(3000, 5)...)
	start := time.Now()
	apply(t, p, nil, full)
	t.Log("first", time.Since(start))
	start = time.Now()
	apply(t, p, nil, full)
	t.Log("again", time.Since(start))
	next := withEndpoints(full, 7, endpoint("10.1.1.1:80"))
	start = time.Now()
	apply(t, p, full, next)
	t.Log("one", time.Since(start))
	if drift.count() != 0 {
		t.Errorf("drift reported for our own transactions: %q", drift.reasons)
	}
	state := kernelState(t, p)
	apply(t, p, nil, next)
	if again := kernelState(t, p); again != state {
		t.Errorf("states differ %d %d", len(state), len(again))
	}
	_ = plan.TCP
}
