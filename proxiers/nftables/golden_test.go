package nftables

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/plan"
)

var update = flag.Bool("update", false, "write the golden files")

func testRenderer(families ...plan.Family) *renderer {
	return &renderer{nft: knftables.NewFake("", ""), table: tableName, families: families, masqueradeMark: 1 << 14}
}

// webServices is a plan with one Service of each kind.
func webServices() []*plan.ServicePort {
	toLocal := plan.Route{Pool: plan.LocalPool}
	local := service("local", []plan.Frontend{
		clusterIP("10.96.0.3", 80),
		{
			Kind: plan.LoadBalancerIP, Addr: addr("203.0.113.3"), Port: 80,
			AllowFrom: []netip.Prefix{prefix("198.51.100.0/24"), prefix("198.51.100.7/32")},
			Routes:    [3]plan.Route{{}, {SNAT: true}, toLocal},
		},
		{Kind: plan.NodePort, Port: 30003, Routes: [3]plan.Route{{}, {SNAT: true}, toLocal}},
	}, localEndpoint("10.244.0.7:8080"), endpoint("10.244.1.7:8080"))
	local.Pools[plan.LocalPool] = []plan.Endpoint{localEndpoint("10.244.0.7:8080")}

	sticky := service("sticky", []plan.Frontend{clusterIP("10.96.0.4", 53)}, endpoint("10.244.1.8:53"), endpoint("10.244.1.9:5353"))
	sticky.Name.Protocol, sticky.Affinity = plan.UDP, 3*time.Hour

	reject := plan.Route{Verdict: plan.Reject}
	empty := service("empty", []plan.Frontend{{Kind: plan.ClusterIP, Addr: addr("10.96.0.5"), Port: 80, Routes: [3]plan.Route{reject, reject, reject}}})

	six := service("web", []plan.Frontend{{Kind: plan.ClusterIP, Addr: addr("fd00:10:96::2"), Port: 80, Routes: toPods}}, endpoint("[fd00:10:244:1::7]:8080"))
	six.Family = plan.IPv6
	return []*plan.ServicePort{
		service("web", []plan.Frontend{clusterIP("10.96.0.2", 80)}, endpoint("10.244.1.7:8080"), endpoint("10.244.2.7:8080")),
		six, local, sticky, empty,
	}
}

// goldenChange is one step whose transaction is kept in testdata.
type goldenChange struct {
	name       string
	prev, next *plan.Plan
}

func goldenChanges() []goldenChange {
	base := newPlan(testNode(), webServices()...)
	index := func(name string, f plan.Family) int {
		for i, svc := range base.Services {
			if svc.Name.Name == name && svc.Family == f {
				return i
			}
		}
		panic("no service " + name)
	}
	web, sticky := index("web", plan.IPv4), index("sticky", plan.IPv4)
	movedNode := *testNode()
	movedNode.NodePortAddrs = []netip.Addr{addr("192.0.2.9"), addr("2001:db8::1")}
	newRange := *testNode()
	newRange.ServiceCIDRs = append([]netip.Prefix{prefix("10.80.0.0/16")}, newRange.ServiceCIDRs...)
	onLoopback := *testNode()
	onLoopback.LoopbackAddrs = []netip.Addr{addr("127.0.0.1"), addr("::1")}
	onNode := func(n *plan.Node) *plan.Plan {
		next := *base
		next.Node = n
		return &next
	}
	return []goldenChange{
		{"loopback-on", base, onNode(&onLoopback)},
		{"loopback-off", onNode(&onLoopback), base},
		{"endpoint-added", base, withEndpoints(base, web, endpoint("10.244.1.7:8080"), endpoint("10.244.2.7:8080"), endpoint("10.244.3.7:8080"))},
		{"endpoint-removed", base, withEndpoints(base, web, endpoint("10.244.2.7:8080"))},
		{"endpoint-replaced", base, withEndpoints(base, web, endpoint("10.244.1.7:8080"), endpoint("10.244.2.8:8080"))},
		{"last-endpoint-removed", base, withEndpoints(base, web)},
		{"affinity-endpoint-removed", base, withEndpoints(base, sticky, endpoint("10.244.1.8:53"))},
		{"nodeport-address-changed", base, onNode(&movedNode)},
		{"service-cidr-added", base, onNode(&newRange)},
		{"services-removed", base, newPlan(base.Node)},
		{"service-added", newPlan(base.Node, webServices()[:2]...), newPlan(base.Node, webServices()[:3]...)},
		{"nothing", base, base},
	}
}

func TestPartialTransactions(t *testing.T) {
	for _, c := range goldenChanges() {
		t.Run(c.name, func(t *testing.T) {
			r := testRenderer(plan.IPv4, plan.IPv6)
			l := newLedger()
			r.enlist(l, c.prev)
			tx, _ := r.partial(l, c.prev, c.next, time.Now())
			compareGolden(t, c.name, tx.String())
		})
	}
}

func TestFirstTransaction(t *testing.T) {
	r := testRenderer(plan.IPv4, plan.IPv6)
	r.podInterfaces = []string{"veth*"}
	next := newPlan(testNode(), webServices()...)
	tx := r.nft.NewTransaction()
	r.base(tx, next.Node, false)
	r.addNode(tx, next.Node)
	r.chunk(tx, newLedger(), next.Services, len(next.Services))
	compareGolden(t, "first", tx.String())
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("transaction differs from %s (run with -update to accept it):\n%s", path, got)
	}
}

func TestChunkKeepsServicesTogether(t *testing.T) {
	r := testRenderer(plan.IPv4)
	var list []*plan.ServicePort
	for _, port := range []string{"a", "b", "c"} {
		svc := service("multi", nil)
		svc.Name.Port = port
		list = append(list, svc)
	}
	list = append(list, service("next", nil))
	rest := r.chunk(r.nft.NewTransaction(), newLedger(), list, 2)
	if len(rest) != 1 || rest[0].Name.Name != "next" {
		t.Errorf("a chunk of 2 left %d ServicePorts, want the one of the next Service", len(rest))
	}
}
