package iptables

import (
	"fmt"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/test/iptablestest"
	"edgeway/test/plantest"
)

// BenchmarkChange measures a change to one endpoint with n Services that have five endpoints each. The result includes
// the time that the iptables programs take.
func BenchmarkChange(b *testing.B) {
	for _, v := range xtables.Variants() {
		for _, n := range []int{100, 5000} {
			b.Run(fmt.Sprintf("%s/%d", v, n), func(b *testing.B) {
				iptablestest.NewHost(b)
				p, err := newProxier(b.Context(), v, testEnv(b))
				if err != nil {
					b.Fatal(err)
				}
				defer p.Close()
				full := plantest.Plan(plantest.Node(), plantest.ManyServices(n, 5)...)
				next := plantest.WithEndpoints(full, n/2, full.Services[n/2].Pools[0][1:]...)
				if err := p.Apply(b.Context(), proxiers.NewChange(nil, full)); err != nil {
					b.Fatal(err)
				}
				for prev := full; b.Loop(); prev, next = next, prev {
					if err := p.Apply(b.Context(), proxiers.NewChange(prev, next)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkFullSync(b *testing.B) {
	for _, v := range xtables.Variants() {
		b.Run(string(v), func(b *testing.B) {
			iptablestest.NewHost(b)
			p, err := newProxier(b.Context(), v, testEnv(b))
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			full := plantest.Plan(plantest.Node(), plantest.ManyServices(5000, 5)...)
			for b.Loop() {
				if err := p.Apply(b.Context(), proxiers.NewChange(nil, full)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
