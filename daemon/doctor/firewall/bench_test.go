package firewall

import (
	"fmt"
	"net/netip"
	"testing"

	"edgeway/proxiers/plan"
)

// BenchmarkSurvey is of many Services that have few endpoints, at two ports: nothing ends it early.
func BenchmarkSurvey(b *testing.B) {
	p := everything()
	first := p.Services[0]
	p.Services = nil
	for i := range 10_000 {
		svc := *first
		svc.Name.Name = fmt.Sprintf("svc-%d", i)
		svc.Pools[plan.ClusterPool] = nil
		for e := range 3 {
			svc.Pools[plan.ClusterPool] = append(svc.Pools[plan.ClusterPool], plan.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i % 40), byte(e)}), 8080)})
		}
		p.Services = append(p.Services, &svc)
	}
	for b.Loop() {
		newSurvey(p, testHost{})
	}
}
