package iptables

import (
	"fmt"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/plantest"
)

// BenchmarkChange is one endpoint that comes and goes, programs included, among that many Services of
// five endpoints.
func BenchmarkChange(b *testing.B) {
	for _, v := range variants {
		for _, n := range []int{100, 5000} {
			b.Run(fmt.Sprintf("%s/%d", v, n), func(b *testing.B) {
				newHost(b)
				p, err := newProxier(b.Context(), v, proxiers.Options{
					Logger: testLogger(b), MasqueradeBit: 14, Drift: func(string) {}, Progress: func(int, int) {},
				})
				if err != nil {
					b.Fatal(err)
				}
				defer p.Close()
				full := plantest.Plan(plantest.Node(), plantest.Many(n, 5)...)
				next := plantest.WithEndpoints(full, n/2, full.Services[n/2].Pools[0][1:]...)
				if err := p.Apply(b.Context(), proxiers.Change{Next: full}); err != nil {
					b.Fatal(err)
				}
				for prev := full; b.Loop(); prev, next = next, prev {
					if err := p.Apply(b.Context(), proxiers.Change{Prev: prev, Next: next}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFullSync is a first sync.
func BenchmarkFullSync(b *testing.B) {
	for _, v := range variants {
		b.Run(string(v), func(b *testing.B) {
			newHost(b)
			p, err := newProxier(b.Context(), v, proxiers.Options{
				Logger: testLogger(b), MasqueradeBit: 14, Drift: func(string) {}, Progress: func(int, int) {},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			full := plantest.Plan(plantest.Node(), plantest.Many(5000, 5)...)
			for b.Loop() {
				if err := p.Apply(b.Context(), proxiers.Change{Next: full}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
