package plantest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

// Addr parses an address.
func Addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// Prefix parses a prefix.
func Prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// Endpoint parses "address:port" and returns an endpoint on another host.
func Endpoint(s string) plan.Endpoint { return plan.Endpoint{Addr: netip.MustParseAddrPort(s)} }

// LocalEndpoint parses "address:port" and returns an endpoint on this host.
func LocalEndpoint(s string) plan.Endpoint {
	return plan.Endpoint{Addr: netip.MustParseAddrPort(s), Local: true}
}

// ClusterIPRoutes holds the Routes of a ClusterIP for which Edgeway masquerades connections from all sources except
// pods.
var ClusterIPRoutes = [3]plan.Route{{}, {SNAT: true}, {SNAT: true}}

// Node returns the plan.Node that the test plans use.
func Node() *plan.Node {
	return &plan.Node{
		Name:          "here",
		HostAddrs:     []netip.Addr{Addr("192.0.2.1"), Addr("2001:db8::1")},
		NodePortAddrs: []netip.Addr{Addr("192.0.2.1"), Addr("2001:db8::1")},
		PodSources:    []netip.Prefix{Prefix("10.244.0.0/24"), Prefix("fd00:10:244::/64")},
		ServiceCIDRs:  []netip.Prefix{Prefix("10.96.0.0/12"), Prefix("fd00:10:96::/112")},
	}
}

// Plan seals and sorts the ServicePorts, and returns a plan that contains them.
func Plan(node *plan.Node, list ...*plan.ServicePort) *plan.Plan {
	for _, svc := range list {
		svc.Seal()
	}
	slices.SortFunc(list, func(a, b *plan.ServicePort) int { return a.Compare(b) })
	return &plan.Plan{Node: node, Services: list}
}

// Service returns a ServicePort for TCP over IPv4.
func Service(name string, frontends []plan.Frontend, cluster ...plan.Endpoint) *plan.ServicePort {
	return &plan.ServicePort{
		Name:   plan.ServicePortName{Namespace: "default", Name: name, Protocol: plan.TCP},
		Family: plan.IPv4, Frontends: frontends, Pools: [2][]plan.Endpoint{cluster, nil},
	}
}

// ClusterIP returns a ClusterIP frontend with the Routes in ClusterIPRoutes.
func ClusterIP(ip string, port uint16) plan.Frontend {
	return plan.Frontend{Kind: plan.ClusterIP, Addr: Addr(ip), Port: port, Routes: ClusterIPRoutes}
}

// ManyServices returns n ServicePorts, each with the given number of endpoints. The Service types have the proportions
// of a typical cluster: 80 % ClusterIP, 15 % NodePort, 5 % LoadBalancer.
func ManyServices(n, each int) []*plan.ServicePort {
	list := make([]*plan.ServicePort, n)
	for i := range list {
		ip := fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
		svc := Service(fmt.Sprintf("s%05d", i), []plan.Frontend{ClusterIP(ip, 80)})
		outside := [3]plan.Route{{}, {SNAT: true}, {SNAT: true}}
		if i%20 == 0 {
			svc.Frontends = append(svc.Frontends,
				plan.Frontend{
					Kind: plan.LoadBalancerIP, Addr: Addr(fmt.Sprintf("203.%d.%d.1", i>>8&255, i&255)),
					Port: 80, Routes: outside,
				})
		}
		if i%5 == 0 {
			svc.Frontends = append(svc.Frontends,
				plan.Frontend{Kind: plan.NodePort, Port: uint16(20000 + i), Routes: outside})
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

// WithEndpoints returns a copy of p in which the cluster pool of ServicePort i contains the endpoints in list. If list
// is empty, the routes to this pool have the verdict Reject.
func WithEndpoints(p *plan.Plan, i int, list ...plan.Endpoint) *plan.Plan {
	svc := *p.Services[i]
	svc.Pools[0] = list
	svc.Frontends = slices.Clone(svc.Frontends)
	for f := range svc.Frontends {
		routes := &svc.Frontends[f].Routes
		for origin, r := range routes {
			if len(list) == 0 && r.Verdict == plan.Forward && r.Pool == plan.ClusterPool {
				routes[origin] = plan.Route{Verdict: plan.Reject}
			}
		}
	}
	svc.Seal()
	next := *p
	next.Services = slices.Clone(p.Services)
	next.Services[i] = &svc
	return &next
}

// SampleServices returns a ServicePort of each kind.
func SampleServices() []*plan.ServicePort {
	toLocal := plan.Route{Pool: plan.LocalPool}
	local := Service("local", []plan.Frontend{
		ClusterIP("10.96.0.3", 80),
		{
			Kind: plan.LoadBalancerIP, Addr: Addr("203.0.113.3"), Port: 80,
			AllowFrom: []netip.Prefix{Prefix("198.51.100.0/24")},
			Routes:    [3]plan.Route{{}, {SNAT: true}, toLocal},
		},
		{Kind: plan.NodePort, Port: 30003, Routes: [3]plan.Route{{}, {SNAT: true}, toLocal}},
	}, LocalEndpoint("10.244.0.7:8080"), Endpoint("10.244.1.7:8080"))
	local.Pools[plan.LocalPool] = []plan.Endpoint{LocalEndpoint("10.244.0.7:8080")}

	sticky := Service("sticky", []plan.Frontend{ClusterIP("10.96.0.4", 53)}, Endpoint("10.244.1.8:53"),
		Endpoint("10.244.1.9:5353"))
	sticky.Name.Protocol, sticky.Affinity = plan.UDP, 3*time.Hour

	reject := plan.Route{Verdict: plan.Reject}
	empty := Service("empty", []plan.Frontend{{
		Kind: plan.ClusterIP, Addr: Addr("10.96.0.5"), Port: 80,
		Routes: [3]plan.Route{reject, reject, reject},
	}})

	six := Service("web", []plan.Frontend{{
		Kind: plan.ClusterIP, Addr: Addr("fd00:10:96::2"), Port: 80,
		Routes: ClusterIPRoutes,
	}}, Endpoint("[fd00:10:244:1::7]:8080"))
	six.Family = plan.IPv6
	return []*plan.ServicePort{
		Service("web", []plan.Frontend{ClusterIP("10.96.0.2", 80)}, Endpoint("10.244.1.7:8080"),
			Endpoint("10.244.2.7:8080")),
		six, local, sticky, empty,
	}
}
