package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// fakeNextHop simulates the kernel's route lookups on a host that has one link and no IPv6.
func fakeNextHop(to netip.Addr) (nodeinfo.NextHop, error) {
	own := netip.MustParseAddr("192.0.2.7")
	switch {
	case to.Is6():
		return noRoute(to)
	case to.IsLoopback() || to == own:
		return nodeinfo.NextHop{Source: to, Interface: "lo", Local: true}, nil
	}
	return nodeinfo.NextHop{Source: own, Gateway: netip.MustParseAddr("192.0.2.1"), Interface: "eth0"}, nil
}

func noRoute(to netip.Addr) (nodeinfo.NextHop, error) {
	return nodeinfo.NextHop{}, fmt.Errorf("no route to %s: %w", to, unix.ENETUNREACH)
}

func subjectOf(p *plan.Plan) *Explainer {
	return &Explainer{State: pipeline.State{AppliedPlan: p}, Lookups: testLookups()}
}

func testLookups() Lookups {
	return Lookups{
		Gaps: func(*plan.ServicePort) []proxiers.Gap { return nil }, NextHop: fakeNextHop,
		DescribeDead: func(*plan.ServicePort) []string { return nil },
		FastPath:     func(*plan.ServicePort, plan.Origin, []nodeinfo.NextHop) string { return "" },
		Faults:       func() []fault.Fault { return nil },
		Path:         func(plan.Decision, bool) (proxiers.Path, error) { return proxiers.Path{}, nil },
	}
}

func explained(t *testing.T, s *Explainer, src, dst, proto string) (Explanation, string) {
	t.Helper()
	e, err := s.Explain(src, dst, proto)
	if err != nil {
		t.Fatalf("%s to %s: %v", src, dst, err)
	}
	text := formatText(e, 0, false)
	if !strings.HasPrefix(text, e.Verdict+": ") {
		t.Errorf("the text does not begin with the verdict:\n%s", text)
	}
	return e, text
}

func TestExplainAgreesWithDecide(t *testing.T) {
	s := subjectOf(testPlan())
	for _, tt := range []struct {
		src, dst, proto string
		origin, verdict string
		says            string // says is text that the output must contain
	}{
		{"192.0.2.99", "10.96.0.1:80", "", "outside", "forward", "via 192.0.2.1 on eth0"},
		{"192.0.2.99", "10.96.0.1:80/tcp", "udp", "outside", "forward", "default/web:http/TCP"},
		{"10.1.0.1", "10.96.0.1:80", "tcp", "outside", "forward", "masquerade"},
		{"10.1.0.9@cni0", "192.0.2.7:30080", "TCP", "pod", "forward", "10.1.0.9 via cni0 (pod)"},
		{"host", "192.0.2.7:30080", "", "host", "forward", "192.0.2.7 (host)"},
		{"192.0.2.99", "192.0.2.7:30080", "", "outside", "forward", "NodePort *:30080"},
		{"192.0.2.99", "203.0.113.1:80", "", "outside", "drop", "loadBalancerSourceRanges"},
		{"192.0.2.99", "10.96.0.2:53/udp", "", "outside", "reject", "default/idle"},
		{"192.0.2.99", "10.96.0.1:81", "", "outside", "reject", "80/TCP (http)"},
		{"192.0.2.99", "10.96.9.9:81", "", "outside", "drop", "10.96.9.9"},
		{"192.0.2.99", "192.0.2.8:30080", "", "outside", "pass", "192.0.2.8"},
		{"192.0.2.99", "127.0.0.1:30080", "", "outside", "drop", "martian"},
		{"192.0.2.99", "localhost:30080", "", "outside", "drop", "martian"},
		{"127.0.0.1@eth0", "10.96.0.1:80", "", "host", "drop", "martian"},
		{"host", "127.0.0.1:30080", "", "host", "forward", "10.1.0.1:8080"},
		{"host", "localhost:30080", "", "host", "forward", "the only usable endpoint on this host"},
		{"host", "127.0.0.1:22", "", "host", "pass", ""},
		{"::ffff:192.0.2.99", "8.8.8.8:53", "udp", "outside", "pass", ""},
		{"fd00::99", "[fd00::1]:80", "", "outside", "reject", "[fd00::1]:80/TCP"},
		{"192.0.2.7", "10.96.0.1:80", "", "host", "forward", "10.96.0.1:80/TCP, via 192.0.2.1 on eth0"},
		// For a client outside the cluster, Explain resolves a Service name to the Service's load-balancer address,
		// even if the Service's source ranges exclude the client. For this host and its pods, Explain resolves the name
		// to the ClusterIP.
		{"host", "default/web", "", "host", "forward", "to         10.96.0.1:80/TCP"},
		{"10.1.0.9@cni0", "default/web:80", "", "pod", "forward", "to         10.96.0.1:80/TCP"},
		{"192.0.2.99", "default/web:http/tcp", "", "outside", "drop", "to         203.0.113.1:80/TCP"},
		{"192.0.2.99", "default/web:30080", "", "outside", "forward", "to         192.0.2.7:30080/TCP"},
		{"fd00::99", "default/web", "", "outside", "reject", "to         [fd00::1]:80/TCP"},
		{"host", "default/idle", "", "host", "reject", "to         10.96.0.2:53/UDP"},
		{"host", "default/idle/udp", "", "host", "reject", "to         10.96.0.2:53/UDP"},
	} {
		e, text := explained(t, s, tt.src, tt.dst, tt.proto)
		if e.Origin != tt.origin || e.Verdict != tt.verdict || !strings.Contains(text, tt.says) {
			t.Errorf("%s to %s: %s %s, want %s %s and %q in\n%s", tt.src, tt.dst, e.Origin, e.Verdict, tt.origin,
				tt.verdict, tt.says, text)
		}
		if e.IsForwarded() != (tt.verdict == "forward") {
			t.Errorf("%s to %s: forwarded %t", tt.src, tt.dst, e.IsForwarded())
		}
	}
}

func TestExplainRejectsInvalidArguments(t *testing.T) {
	p := testPlan()
	metrics := *p.Services[1]
	metrics.Name.Port, metrics.Frontends = "metrics",
		[]plan.Frontend{{Addr: netip.MustParseAddr("10.96.0.1"), Port: 9090}}
	p.Services = slices.Insert(p.Services, 3, &metrics)
	s := subjectOf(p)
	for _, tt := range []struct{ src, dst, proto, want string }{
		{"", "10.96.0.1:80", "", "source"},
		{"somewhere", "10.96.0.1:80", "", "somewhere"},
		{"192.0.2.1", "10.96.0.1:", "", "ADDRESS[:PORT]"},
		{"192.0.2.1", "10.96.0.1:99999", "", "10.96.0.1:99999"},
		{"192.0.2.1", "10.96.0.1:80/icmp", "", "icmp"},
		{"192.0.2.1", "localhost:http", "", "localhost:PORT"},
		{"192.0.2.1", "/web", "", "NAME[:PORT]"},
		{"192.0.2.1", "default/web:80/icmp", "", "icmp"},
		{"192.0.2.1", "[fd00::1]:80", "", "address families"},
		{"host", "[fd00::1]:80", "", "no IPv6 address"},
		{"host", "default/none", "", "default/none"},
		{"host", "default/wbe", "", "default/web?"},
		{"host", "default/web", "", "80/TCP (http), 9090/TCP (metrics)"},
		{"host", "default/web:81", "", "80/TCP (http), 9090/TCP (metrics)"},
		{"fd00::99", "default/idle", "", "port"},
	} {
		if _, err := s.Explain(tt.src, tt.dst, tt.proto); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q to %q: error %v, want %q", tt.src, tt.dst, err, tt.want)
		}
	}
}

// On a host with two links, the source address depends on the destination, and the verdict depends on the source
// address.
func TestExplainUsesKernelSourceAddress(t *testing.T) {
	s := subjectOf(testPlan())
	s.State.AppliedPlan.Node.HostAddrs = append(s.State.AppliedPlan.Node.HostAddrs, netip.MustParseAddr("198.51.100.9"))
	for from, verdict := range map[string]string{"198.51.100.9": "forward", "192.0.2.7": "drop"} {
		s.NextHop = func(netip.Addr) (nodeinfo.NextHop, error) {
			return nodeinfo.NextHop{Source: netip.MustParseAddr(from), Interface: "eth1"}, nil
		}
		e, text := explained(t, s, "host", "203.0.113.1:80", "")
		if e.Source != from || e.Verdict != verdict || !strings.Contains(text, "203.0.113.1:80/TCP, on eth1") {
			t.Errorf("from %s: %s\n%s", from, e.Verdict, text)
		}
	}
}

func TestExplainReportsMissingRoute(t *testing.T) {
	s := subjectOf(testPlan())
	s.NextHop = noRoute
	e, text := explained(t, s, "host", "default/web", "")
	if e.Verdict != "unreachable" || e.Source != "host" || !strings.Contains(e.Fix, `routes.services = "auto"`) ||
		e.Service == "" || !strings.HasPrefix(text, "unreachable: ") || !strings.Contains(text, "10.96.0.1") {
		t.Errorf("no route to a ClusterIP:\n%s", text)
	}
	e, text = explained(t, s, "192.0.2.99", "10.96.0.1:80", "")
	if e.Verdict != "unreachable" || !strings.Contains(e.Fix, "10.2.0.1") {
		t.Errorf("no route to any endpoint:\n%s", text)
	}
	s.NextHop = func(to netip.Addr) (nodeinfo.NextHop, error) {
		if to == netip.MustParseAddr("10.2.0.1") {
			return noRoute(to)
		}
		return fakeNextHop(to)
	}
	e, text = explained(t, s, "192.0.2.99", "10.96.0.1:80", "")
	if e.Verdict != "forward" || !strings.Contains(e.Fix, "10.2.0.1") {
		t.Errorf("no route to one of two endpoints:\n%s", text)
	}
}

func withObjects(node *source.Node, problems ...fault.Fault) *Explainer {
	addrs := func(a string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(a)} }
	s := subjectOf(testPlan())
	s.State.Snapshot = &tracker.Snapshot{Node: node, Problems: problems, Services: []*tracker.Service{
		{Spec: &source.Service{Namespace: "default", Name: "idle", ClusterIPs: addrs("10.96.0.2"), Ports: []source.ServicePort{{Protocol: plan.UDP, Port: 53}}}},
		{Spec: &source.Service{Namespace: "default", Name: "lost", ExternalIPs: addrs("198.51.100.77"), Ports: []source.ServicePort{{Protocol: plan.TCP, Port: 80}}}},
	}}
	return s
}

func TestExplainReportsReasonAndFix(t *testing.T) {
	e, text := explained(t, withObjects(nil), "host", "default/idle", "")
	if !strings.Contains(e.Reason, "default/idle/UDP") || !strings.Contains(text, "\n            fix: "+e.Fix) {
		t.Errorf("no endpoint:\n%s", text)
	}
	for want, node := range map[string]*source.Node{`node.local_policy = "cluster"`: nil, "endpoint": {Name: "edge"}} {
		s := withObjects(node)
		s.State.AppliedPlan.Services[1].Frontends[2].Routes[plan.FromOutside] = plan.Route{Verdict: plan.Drop}
		if e, text := explained(t, s, "192.0.2.99", "192.0.2.7:30080", ""); e.Verdict != "drop" ||
			!strings.Contains(e.Fix, want) {
			t.Errorf("a Local policy: want %q in\n%s", want, text)
		}
	}
	if e, text := explained(t, withObjects(nil), "192.0.2.99", "203.0.113.1:80", ""); !strings.Contains(e.Fix,
		"loadBalancerSourceRanges") {
		t.Errorf("source ranges:\n%s", text)
	}
	why := fault.Fault{
		Object: fault.Object{Kind: "Service", Namespace: "default", Name: "lost"}, Field: "spec.externalIPs",
		Message: "198.51.100.77 is not in a range of proxy.allow_external_ips",
	}
	other := why
	other.Object.Name = "idle"
	e, text = explained(t, withObjects(nil, why, other), "192.0.2.99", "198.51.100.77:80", "")
	if e.Verdict != "pass" || !slices.Equal(e.Faults, []fault.Fault{why}) ||
		!strings.Contains(text, "Service default/lost: spec.externalIPs") {
		t.Errorf("an address that a Service asks for in vain:\n%s", text)
	}
	if _, err := withObjects(nil).Explain("host", "default/lost", ""); err == nil ||
		!strings.Contains(err.Error(), "edgeway services default/lost") {
		t.Errorf("a Service that has none of its addresses: %v", err)
	}
}

func TestExplainReportsWhetherPlanIsInForce(t *testing.T) {
	s := subjectOf(testPlan())
	if e, text := explained(t, s, "host", "10.96.0.1:80", ""); !e.InForce || strings.Contains(text, "(no daemon") {
		t.Errorf("in force:\n%s", text)
	}
	s.State = pipeline.State{Plan: testPlan()}
	if e, text := explained(t, s, "host", "10.96.0.1:80", ""); e.InForce ||
		!strings.Contains(text, "\nplan       not in the kernel yet\n") {
		t.Errorf("not in force:\n%s", text)
	}
}

func TestSubjectServices(t *testing.T) {
	if got := subjectOf(testPlan()).Services(); !slices.Equal(got, []string{"default/idle", "default/web"}) {
		t.Errorf("of a plan: %q", got)
	}
	if got := withObjects(nil).Services(); !slices.Equal(got, []string{"default/idle", "default/lost"}) {
		t.Errorf("of the objects: %q", got)
	}
	if got := (&Explainer{}).Services(); got == nil || len(got) > 0 {
		t.Errorf("of nothing: %q", got)
	}
}

func TestExplainShowsGaps(t *testing.T) {
	gaps := func(svc *plan.ServicePort) []proxiers.Gap {
		if svc.Affinity == 0 {
			return nil
		}
		return []proxiers.Gap{{Feature: "session affinity", Reason: "it forgets"}}
	}
	p := testPlan()
	subject := subjectOf(p)
	subject.Gaps = gaps
	found := 0
	for _, s := range p.Services {
		found += len(gaps(s))
		for _, f := range s.Frontends {
			if f.Kind != plan.ClusterIP {
				continue
			}
			from := "192.0.2.99"
			if s.Family == plan.IPv6 {
				from = "2001:db8::99"
			}
			_, text := explained(t, subject, from, netip.AddrPortFrom(f.Addr, f.Port).String(),
				strings.ToLower(s.Name.Protocol.String()))
			if strings.Contains(text, "session affinity: it forgets") != (len(gaps(s)) == 1) {
				t.Error(text)
			}
		}
	}
	if found == 0 {
		t.Error("no Service of the test has a gap")
	}
}

func TestExplainReportsFastPath(t *testing.T) {
	s := subjectOf(testPlan())
	s.FastPath = func(svc *plan.ServicePort, origin plan.Origin, hops []nodeinfo.NextHop) string {
		return fmt.Sprintf("no: %s from %s by %d ways", svc.Name.Name, origin, len(hops))
	}
	e, text := explained(t, s, "192.0.2.99", "10.96.0.1:80", "")
	if want := fmt.Sprintf("no: web from outside by %d ways", 1+len(e.Endpoints)); e.FastPath != want ||
		!strings.Contains(text, "fast path  "+want) {
		t.Errorf("%q in\n%s", e.FastPath, text)
	}
	if e, _ := explained(t, s, "192.0.2.99", "10.96.0.2:53/udp", ""); e.FastPath != "" {
		t.Errorf("a connection that is rejected: %q", e.FastPath)
	}
}

// The verdict is "fail" rather than "forward" if the daemon reports a fault that affects the connection.
func TestExplainVerdictFollowsFaults(t *testing.T) {
	s := withObjects(nil)
	const client, dst = "192.0.2.99", "10.96.0.1:80"
	if e, _ := explained(t, s, client, dst, ""); e.Verdict != "forward" || !e.IsForwarded() {
		t.Fatalf("without faults: %+v", e)
	}
	problem := fault.New("ip-forward", fault.Problem, "sysctl -w x=1", "it is 0")
	for name, c := range map[string]struct {
		fault   fault.Fault
		verdict string
	}{
		"all connections":    {problem, "fail"},
		"those of others":    {problem.WithScope(fault.Scope{Clients: fault.Others}), "fail"},
		"the ServicePort":    {problem.WithScope(fault.Scope{ServicePort: "default/web:http/TCP"}), "fail"},
		"the host's":         {problem.WithScope(fault.Scope{Clients: fault.Host}), "forward"},
		"another one":        {problem.WithScope(fault.Scope{ServicePort: "default/other/TCP"}), "forward"},
		"another network":    {problem.WithScope(fault.Scope{To: netip.MustParsePrefix("203.0.113.0/24")}), "forward"},
		"what has no rules":  {problem.WithScope(fault.Scope{Clients: fault.NoClients}), "forward"},
		"a mere restriction": {fault.New("a", fault.Warning, "", "old"), "forward"},
	} {
		s.Faults = func() []fault.Fault { return []fault.Fault{c.fault} }
		e, text := explained(t, s, client, dst, "")
		fails := c.verdict == "fail"
		if e.Verdict != c.verdict || e.IsForwarded() == fails ||
			fails != strings.Contains(text, "\n            fix: sysctl -w x=1\n") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
