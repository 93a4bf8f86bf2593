package doctor

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// A client of the daemon's socket receives the facts unchanged, including every detail of the plan.
func TestFactsRoundTrip(t *testing.T) {
	nodePort := plan.Frontend{
		Kind: plan.NodePort, Port: 30080, AllowFrom: []netip.Prefix{},
		Routes: [3]plan.Route{{Verdict: plan.Drop}, {Pool: plan.LocalPool, SNAT: true}, {}},
	}
	svc := servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10"), nodePort}, "10.244.1.11:8080")
	svc.Affinity, svc.Pools[plan.LocalPool] = time.Hour,
		[]plan.Endpoint{{Addr: netip.MustParseAddrPort("[fd00::1]:1"), Local: true}}
	h, _ := testHost(svc)
	want := Facts{
		PID: 7, NodeObject: true, Plan: h.Plan, InForce: true,
		Faults: []fault.Fault{{ID: "a", Severity: fault.Problem, Message: "b", Fix: "c"}},
	}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Facts
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestReport(t *testing.T) {
	h := &Host{Config: config.Default()}
	h.Config.Doctor.Ignore = []string{"no-endpoint", "rp-filter"}
	r := NewReport(h, []fault.Fault{
		{ID: "no-endpoint", Severity: fault.Notice, Message: "ignored"},
		{ID: "conntrack", Severity: fault.OK, Message: "room"},
		{ID: "rp-filter", Severity: fault.Warning, Message: "strict", Fix: "sysctl -w a=2"},
		{ID: "ip-forward", Severity: fault.Problem, Message: "it is 0\nok       all", Fix: "sysctl -w b=1"},
	})
	var ids []string
	for _, f := range r.Faults {
		ids = append(ids, f.ID)
	}
	if want := []string{"ip-forward", "rp-filter", "conntrack"}; !slices.Equal(ids, want) ||
		r.Severity != fault.Problem {
		t.Errorf("%q, the worst is a %s; want %q, the worst first", ids, r.Severity, want)
	}
}

// Every check has a name, and edgeway(8) lists that name, with an asterisk if the daemon itself runs the check.
func TestManualListsEveryCheck(t *testing.T) {
	manual := manualChecks(t)
	seen := map[string]bool{}
	for _, c := range Checks() {
		if asterisk, listed := manual[c.Name]; !listed || asterisk != c.Cheap {
			t.Errorf("check %s is cheap: %v; edgeway(8) lists it: %v, with an asterisk: %v", c.Name, c.Cheap, listed,
				asterisk)
		}
		delete(manual, c.Name)
		if c.Name == "" || seen[c.Name] || len(c.Name) > 16 {
			t.Errorf("check %+v", c)
		}
		seen[c.Name] = true
	}
	if len(CheapChecks()) == 0 || len(CheapChecks()) == len(Checks()) {
		t.Errorf("%d of %d checks are cheap", len(CheapChecks()), len(Checks()))
	}
	delete(manual, "clock") // the api-server check reports this fault
	if len(manual) > 0 {
		t.Errorf("edgeway(8) lists what is no check: %v", manual)
	}
}

// manualChecks maps the name of each check in edgeway(8) to whether the name has an asterisk.
func manualChecks(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../../packaging/man/edgeway.8")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\n.Bl -tag -width route-endpoints*\n")
	list, _, _ = strings.Cut(list, "\n.El\n")
	names := map[string]bool{}
	for line := range strings.Lines(list) {
		if items, ok := strings.CutPrefix(strings.TrimSpace(line), ".It Sy "); ok {
			for item := range strings.SplitSeq(items, " , ") {
				name, asterisk := strings.CutSuffix(item, "*")
				names[name] = asterisk
			}
		}
	}
	return names
}

// If the state of a host is unknown, for example before the first plan, no check reports a problem.
func TestChecksWithoutFacts(t *testing.T) {
	h, _ := testHost()
	h.Facts = Facts{}
	for _, c := range CheapChecks() {
		if got := runCheck(t, h, c.Name); len(got) > 0 {
			t.Errorf("%s: %s", c.Name, got)
		}
	}
}
