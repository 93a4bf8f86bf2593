package plantest

import (
	"net/netip"

	"edgeway/proxiers/plan"
)

// Change is a named pair of consecutive plans.
type Change struct {
	Name       string
	Prev, Next *plan.Plan
}

// Changes returns one change of each kind. The plans are based on SampleServices.
func Changes() []Change {
	base := Plan(Node(), SampleServices()...)
	index := func(name string, f plan.Family) int {
		for i, svc := range base.Services {
			if svc.Name.Name == name && svc.Family == f {
				return i
			}
		}
		panic("no service " + name)
	}
	web, sticky := index("web", plan.IPv4), index("sticky", plan.IPv4)
	movedNode := *Node()
	movedNode.NodePortAddrs = []netip.Addr{Addr("192.0.2.9"), Addr("2001:db8::1")}
	newRange := *Node()
	newRange.ServiceCIDRs = append([]netip.Prefix{Prefix("10.80.0.0/16")}, newRange.ServiceCIDRs...)
	onLoopback := *Node()
	onLoopback.LoopbackAddrs = []netip.Addr{Addr("127.0.0.1"), Addr("::1")}
	onNode := func(n *plan.Node) *plan.Plan {
		next := *base
		next.Node = n
		return &next
	}
	return []Change{
		{"loopback-on", base, onNode(&onLoopback)},
		{"loopback-off", onNode(&onLoopback), base},
		{"endpoint-added", base, WithEndpoints(base, web, Endpoint("10.244.1.7:8080"), Endpoint("10.244.2.7:8080"), Endpoint("10.244.3.7:8080"))},
		{"endpoint-removed", base, WithEndpoints(base, web, Endpoint("10.244.2.7:8080"))},
		{"endpoint-replaced", base, WithEndpoints(base, web, Endpoint("10.244.1.7:8080"), Endpoint("10.244.2.8:8080"))},
		{"last-endpoint-removed", base, WithEndpoints(base, web)},
		{"affinity-endpoint-removed", base, WithEndpoints(base, sticky, Endpoint("10.244.1.8:53"))},
		{"nodeport-address-changed", base, onNode(&movedNode)},
		{"service-cidr-added", base, onNode(&newRange)},
		{"services-removed", base, Plan(base.Node)},
		{"service-added", Plan(base.Node, SampleServices()[:2]...), Plan(base.Node, SampleServices()[:3]...)},
		{"nothing", base, base},
	}
}
