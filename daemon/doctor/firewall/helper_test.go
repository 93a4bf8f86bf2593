package firewall

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// The host of the tests: clients come by eth0, endpoints are behind eth1.
type testHost struct{}

var (
	nodeAddr  = netip.MustParseAddr("192.0.2.10")
	node6Addr = netip.MustParseAddr("2001:db8:1::10")
)

func (testHost) LinkOf(a netip.Addr) string {
	if a == nodeAddr || a == node6Addr {
		return "eth0"
	}
	return ""
}

func (testHost) Route(to netip.Addr) (string, netip.Addr) {
	switch {
	case to == nodeAddr || to == node6Addr:
		return "lo", to
	case to.Is4() && strings.HasPrefix(to.String(), "10.244."):
		return "eth1", netip.MustParseAddr("10.244.0.1")
	case to.Is4():
		return "eth0", nodeAddr
	}
	return "eth0", node6Addr
}

// testPlan has one Service over TCP with an endpoint elsewhere, and frontends of these kinds.
func testPlan(kinds ...plan.FrontendKind) *plan.Plan {
	p := &plan.Plan{Node: &plan.Node{
		Name: "edge", HostAddrs: []netip.Addr{nodeAddr, node6Addr}, NodePortAddrs: []netip.Addr{nodeAddr},
	}}
	svc := &plan.ServicePort{
		Name:   plan.ServicePortName{Namespace: "default", Name: "web", Port: "http", Protocol: plan.TCP},
		Family: plan.IPv4,
	}
	svc.Pools[plan.ClusterPool] = []plan.Endpoint{{Addr: netip.MustParseAddrPort("10.244.1.11:8080")}}
	for _, k := range kinds {
		f := plan.Frontend{Kind: k, Port: 80, Addr: netip.MustParseAddr("10.96.0.10")}
		if k == plan.NodePort {
			f.Port, f.Addr = 30080, netip.Addr{}
			for i := range f.Routes {
				f.Routes[i].SNAT = true
			}
		}
		svc.Frontends = append(svc.Frontends, f)
	}
	p.Services = []*plan.ServicePort{svc}
	return p
}

// everything has all kinds of frontends, endpoints on this host and elsewhere, pods, and a health check.
func everything() *plan.Plan {
	p := testPlan(plan.ClusterIP, plan.NodePort)
	p.Node.PodSources = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
	p.HealthChecks = []*plan.HealthCheck{{Namespace: "default", Name: "lb", Port: 30999}}
	local := *p.Services[0]
	local.Name.Name = "local"
	local.Pools[plan.ClusterPool] = []plan.Endpoint{{Addr: netip.AddrPortFrom(nodeAddr, 9100), Local: true}}
	p.Services = append(p.Services, &local)
	return p
}

// readSave reads the output of iptables-save, of all tables.
func readSave(text string) (out []*table) {
	var s saving
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			s = saving{text: sha256.New(), table: &table{family: "ip", name: line[1:], program: "iptables", chains: map[string]*chain{}}}
			if s.table.name != xtables.NAT {
				out = append(out, s.table)
			}
		case strings.HasPrefix(line, ":"):
			words := strings.Fields(line[1:])
			s.line(xtables.Line{Chain: words[0], Policy: words[1]})
		case strings.HasPrefix(line, "-A "):
			chain, rest, _ := strings.Cut(line[3:], " ")
			s.line(xtables.Line{Chain: chain, IsRule: true, Rule: rest})
		}
	}
	return out
}

func testdata(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func mustParse(t testing.TB, text string) []*table {
	t.Helper()
	tables, err := parseNFT([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func judge(tables []*table, ways []*way, masqueradeBit int) []fault.Fault {
	return ask(tables, ways, masqueradeBit).findings()
}

// asked gives the findings about the rules.
func asked(p *plan.Plan, tables []*table) []fault.Fault {
	return judge(tables, newSurvey(p, testHost{}).ways, 14)
}

// chainJSON is what nft prints of a table with one base chain and its rules, each a list of statements.
func chainJSON(hook string, priority int, policy string, rules ...string) string {
	items := []string{fmt.Sprintf(`{"chain": {"family": "inet", "table": "foo", "name": "c", "handle": 1, "type": "filter", "hook": %q, "prio": %d, "policy": %q}}`, hook, priority, policy)}
	for i, r := range rules {
		name, statements := "c", strings.TrimPrefix(r, "[")
		if statements == r {
			name, statements, _ = strings.Cut(r, ": [")
		}
		items = append(items, fmt.Sprintf(`{"rule": {"family": "inet", "table": "foo", "chain": %q, "handle": %d, "expr": [%s}}`, name, i+2, statements))
	}
	return `{"nftables": [{"metainfo": {"version": "1.0.6"}}, ` + strings.Join(items, ", ") + `]}`
}
