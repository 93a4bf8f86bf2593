package firewall

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

func TestMain(m *testing.M) {
	netlab.PeerMain()
	os.Exit(m.Run())
}

var nodeAddr = netip.MustParseAddr("192.0.2.10")

func testPlan(endpoints ...string) *plan.Plan {
	p := &plan.Plan{Node: &plan.Node{
		Name: "edge", HostAddrs: []netip.Addr{nodeAddr}, NodePortAddrs: []netip.Addr{nodeAddr},
	}}
	svc := &plan.ServicePort{
		Name:      plan.ServicePortName{Namespace: "default", Name: "web", Port: "http", Protocol: plan.TCP},
		Family:    plan.IPv4,
		Frontends: []plan.Frontend{{Kind: plan.NodePort, Port: 30080}},
	}
	for _, e := range endpoints {
		svc.Pools[plan.ClusterPool] = append(svc.Pools[plan.ClusterPool],
			plan.Endpoint{Addr: netip.MustParseAddrPort(e)})
	}
	p.Services = []*plan.ServicePort{svc}
	return p
}

// remoteEndpoint is an endpoint behind eth1, and localEndpoint is an endpoint on this host.
const (
	remoteEndpoint = "10.244.1.11:8080"
	localEndpoint  = "192.0.2.10:9100"
)

// rulesHost is a network namespace whose firewall rules a Checker inspects.
type rulesHost struct {
	*testing.T
	node *netlab.Host
	*Checker
	question Requirements
}

func newRulesHost(t *testing.T, endpoints ...string) *rulesHost {
	t.Helper()
	// Programs of other tests hold the default lock, and iptables then waits or fails.
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	return &rulesHost{t, netlab.New(t, netlab.Options{}).Node, New(), Requirements{
		Plan:               testPlan(append(endpoints, remoteEndpoint)...),
		ForwardedFrontends: func(plan.Family) (string, string) { return "NodePort 30080 of default/web", "" },
		Links:              func() []string { return []string{"eth1"} },
	}}
}

func (h *rulesHost) sh(commands string) string {
	h.Helper()
	out, err := h.node.Command(h.Context(), "sh", "-ec", commands).CombinedOutput()
	if err != nil {
		h.Fatalf("%s: %v: %s", commands, err, out)
	}
	return string(out)
}

func (h *rulesHost) load(name string, edit *strings.Replacer, program ...string) {
	h.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		h.Fatal(err)
	}
	c := h.node.Command(h.Context(), program[0], program[1:]...)
	c.Stdin = strings.NewReader(edit.Replace(string(raw)))
	if out, err := c.CombinedOutput(); err != nil {
		h.Fatalf("%s: %v: %s", name, err, out)
	}
}

func (h *rulesHost) look() (found []fault.Fault) {
	h.Helper()
	if err := h.node.Do(func() error {
		found = h.Findings(h.Context(), h.question)
		return nil
	}); err != nil {
		h.Fatal(err)
	}
	for _, f := range found {
		if f.ID != FaultID || (f.Severity == fault.OK) != (f.Fix == "") {
			h.Errorf("%+v", f)
		}
	}
	return found
}

// wantFinding fails the test unless the check returns exactly one finding. The finding must have the given severity,
// and its message must contain the string names. wantFinding returns the suggested fix.
func (h *rulesHost) wantFinding(level fault.Severity, names string) (fix string) {
	h.Helper()
	found := h.look()
	if len(found) != 1 || found[0].Severity != level || !strings.Contains(found[0].Message, names) {
		h.Fatalf("found %+v, want one %s with %q", found, level, names)
	}
	return found[0].Fix
}

func (h *rulesHost) well() {
	h.Helper()
	h.wantFinding(fault.OK, "")
}

func (h *rulesHost) obey() {
	h.Helper()
	for _, f := range h.look() {
		if f.Severity != fault.OK {
			h.Logf("%s\n\tfix: %s", f.Message, f.Fix)
			h.sh(f.Fix)
		}
	}
}

func isTrace(fix string) bool { return slices.Contains(strings.Fields(fix), "--trace") }
