package conntrack

import (
	"fmt"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func BenchmarkEndpointLostAmong50000Flows(b *testing.B) {
	benchmarkApply(b, proxiers.NewChange(planOf(service(udp4, "dns", []string{vip}, first)),
		planOf(service(udp4, "dns", []string{vip}))))
}

func BenchmarkFullSyncAmong50000Flows(b *testing.B) {
	var many []*plan.ServicePort
	for i := range 100 {
		many = append(many, service(udp4, fmt.Sprintf("s%02d", i), []string{fmt.Sprintf("10.96.1.%d:53", i)}))
	}
	benchmarkApply(b, proxiers.NewChange(nil, planOf(many...)))
}

func benchmarkApply(b *testing.B, c proxiers.Change) {
	enterNamespace(b)
	translate(b)
	createFlows(b, 50000)
	f := newFollower(b)
	for b.Loop() {
		if err := f.Apply(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
