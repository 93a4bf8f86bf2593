package nftables

import (
	"log/slog"
	"net/netip"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// A Service's source ranges may change together with more endpoints than one transaction can hold.
func TestRangesOfSplitBatchDoNotOverlap(t *testing.T) {
	newHost(t)
	s := schema(false)
	s.ChunkSize = 30
	p := start(t, s, proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: []plan.Family{plan.IPv4},
		MasqueradeBit: 14, Drift: func(string) {}, Progress: func(int, int) {},
	})
	version := func(third byte, ranges ...netip.Prefix) *plan.Plan {
		lb := plan.Frontend{
			Kind: plan.LoadBalancerIP, Addr: plantest.Addr("203.0.113.1"), Port: 80,
			Routes: plantest.ClusterIPRoutes, AllowFrom: ranges,
		}
		svc := plantest.Service("web", []plan.Frontend{lb})
		for i := range byte(100) {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, third, i}), 8080)
			svc.Pools[plan.ClusterPool] = append(svc.Pools[plan.ClusterPool], plan.Endpoint{Addr: at})
		}
		return plantest.Plan(plantest.Node(), svc)
	}
	before := version(1, plantest.Prefix("198.51.100.0/24"))
	apply(t, p, nil, before)
	apply(t, p, before, version(2, plantest.Prefix("198.51.100.0/25"), plantest.Prefix("198.51.100.128/25")))
}
