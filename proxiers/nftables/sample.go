package nftables

import (
	"net/netip"
	"time"

	"edgeway/proxiers/plan"
)

// Sample returns a plan that uses every feature once in each family. All addresses in the plan except the loopback
// addresses are reserved for documentation.
func Sample() *plan.Plan {
	p := &plan.Plan{Node: &plan.Node{
		NodePortAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		LoopbackAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
		PodSources: []netip.Prefix{
			netip.MustParsePrefix("198.51.100.0/24"),
			netip.MustParsePrefix("2001:db8:1::/48"),
		},
		PodInterfaces: []string{"probe*"},
		ServiceCIDRs: []netip.Prefix{
			netip.MustParsePrefix("203.0.113.0/24"),
			netip.MustParsePrefix("2001:db8:2::/112"),
		},
	}}
	p.Services = append(p.Services,
		probeService(plan.IPv4, "203.0.113.1", "198.51.100.1", "192.0.2.0/25"),
		probeService(plan.IPv6, "2001:db8:2::1", "2001:db8:1::1", "2001:db8:3::/64"))
	return p
}

func probeService(f plan.Family, vip, endpoint, source string) *plan.ServicePort {
	list := []plan.Endpoint{{Addr: netip.AddrPortFrom(netip.MustParseAddr(endpoint), 8080), Local: true}}
	return &plan.ServicePort{
		Name:     plan.ServicePortName{Namespace: "probe", Name: "probe", Protocol: plan.SCTP},
		Family:   f,
		Affinity: time.Hour,
		Pools:    [2][]plan.Endpoint{list, list},
		Frontends: []plan.Frontend{
			{
				Kind: plan.ClusterIP, Addr: netip.MustParseAddr(vip), Port: 80,
				AllowFrom: []netip.Prefix{netip.MustParsePrefix(source)},
				Routes:    [3]plan.Route{{}, {Pool: plan.LocalPool, SNAT: true}, {Verdict: plan.Drop}},
			},
			{
				Kind: plan.NodePort, Port: 30000,
				AllowFrom: []netip.Prefix{netip.MustParsePrefix(source)},
				Routes:    [3]plan.Route{{}, {Verdict: plan.Reject}, {Pool: plan.LocalPool}},
			},
		},
	}
}
