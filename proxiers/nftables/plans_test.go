package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"edgeway/proxiers/plan"
)

func addr(s string) netip.Addr        { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix    { return netip.MustParsePrefix(s) }
func endpoint(s string) plan.Endpoint { return plan.Endpoint{Addr: netip.MustParseAddrPort(s)} }
func localEndpoint(s string) plan.Endpoint {
	return plan.Endpoint{Addr: netip.MustParseAddrPort(s), Local: true}
}

// toPods is the route of a ClusterIP: others than pods are masqueraded.
var toPods = [3]plan.Route{{}, {SNAT: true}, {SNAT: true}}

func testNode() *plan.Node {
	return &plan.Node{
		Name:          "here",
		HostAddrs:     []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")},
		NodePortAddrs: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")},
		PodSources:    []netip.Prefix{prefix("10.244.0.0/24"), prefix("fd00:10:244::/64")},
		ServiceCIDRs:  []netip.Prefix{prefix("10.96.0.0/12"), prefix("fd00:10:96::/112")},
	}
}

// newPlan seals and sorts the services.
func newPlan(node *plan.Node, list ...*plan.ServicePort) *plan.Plan {
	for _, svc := range list {
		svc.Seal()
	}
	slices.SortFunc(list, func(a, b *plan.ServicePort) int { return a.Compare(b) })
	return &plan.Plan{Node: node, Services: list}
}

func service(name string, frontends []plan.Frontend, cluster ...plan.Endpoint) *plan.ServicePort {
	return &plan.ServicePort{
		Name:   plan.ServicePortName{Namespace: "default", Name: name, Protocol: plan.TCP},
		Family: plan.IPv4, Frontends: frontends, Pools: [2][]plan.Endpoint{cluster, nil},
	}
}

func clusterIP(ip string, port uint16) plan.Frontend {
	return plan.Frontend{Kind: plan.ClusterIP, Addr: addr(ip), Port: port, Routes: toPods}
}

// manyServices gives n ServicePorts with the endpoints of each, of the kinds that clusters have:
// 80 % ClusterIP, 15 % NodePort, 5 % LoadBalancer.
func manyServices(n, each int) []*plan.ServicePort {
	list := make([]*plan.ServicePort, n)
	for i := range list {
		ip := fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
		svc := service(fmt.Sprintf("s%05d", i), []plan.Frontend{clusterIP(ip, 80)})
		outside := [3]plan.Route{{}, {SNAT: true}, {SNAT: true}}
		if i%20 == 0 {
			svc.Frontends = append(svc.Frontends, plan.Frontend{Kind: plan.LoadBalancerIP, Addr: addr(fmt.Sprintf("203.%d.%d.1", i>>8&255, i&255)), Port: 80, Routes: outside})
		}
		if i%5 == 0 {
			svc.Frontends = append(svc.Frontends, plan.Frontend{Kind: plan.NodePort, Port: uint16(20000 + i), Routes: outside})
		}
		for j := range each {
			var ip [4]byte
			binary.BigEndian.PutUint32(ip[:], 10<<24|128<<16+uint32(i*each+j))
			svc.Pools[0] = append(svc.Pools[0], plan.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4(ip), 8080)})
		}
		svc.Seal()
		list[i] = svc
	}
	return list
}

// withEndpoints gives a copy of the plan in which one ServicePort has another cluster pool.
func withEndpoints(p *plan.Plan, i int, list ...plan.Endpoint) *plan.Plan {
	svc := *p.Services[i]
	svc.Pools[0] = list
	svc.Seal()
	next := *p
	next.Services = slices.Clone(p.Services)
	next.Services[i] = &svc
	return &next
}
