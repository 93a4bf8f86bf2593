package nftables

import (
	"fmt"
	"testing"
)

func BenchmarkFlip(b *testing.B) {
	for _, n := range []int{100, 1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 5)...)
			next := withEndpoints(full, n/2, full.Services[n/2].Pools[0][1:]...)
			other := withEndpoints(full, n/2+1, full.Services[n/2+1].Pools[0][1:]...)
			mustApply(b, p, nil, full)
			mustApply(b, p, full, other)
			childCPU(b)
			cur, nxt := other, withEndpoints(other, n/2, next.Services[n/2].Pools[0]...)
			for b.Loop() {
				mustApply(b, p, cur, nxt)
				cur, nxt = nxt, cur
			}
		})
	}
}
