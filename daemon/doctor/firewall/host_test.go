package firewall

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
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

// rulesHost is a host of its own.
type rulesHost struct {
	*testing.T
	node *netlab.Host
	*Checker
	asked Question
}

func newRulesHost(t *testing.T) *rulesHost {
	t.Helper()
	asked := Question{Plan: testPlan(plan.NodePort), Host: testHost{}, MasqueradeBit: 14}
	return &rulesHost{t, netlab.New(t, netlab.Options{}).Node, New(), asked}
}

// run runs a script of nft.
func (h *rulesHost) run(script string) {
	h.Helper()
	nft := h.node.Command(h.Context(), "nft", "-f", "-")
	nft.Stdin = strings.NewReader(script)
	if out, err := nft.CombinedOutput(); err != nil {
		h.Fatalf("%v: %s", err, out)
	}
}

// look gives what the Checker says, again and again.
func (h *rulesHost) look() (found []fault.Fault) {
	h.Helper()
	if err := h.node.Do(func() error {
		found = h.Look(h.Context(), h.asked)
		return nil
	}); err != nil {
		h.Fatal(err)
	}
	return found
}

// What the tests read from files is what nft says of the same rules.
func TestRulesOfTheKernel(t *testing.T) {
	for _, name := range []string{"firewalld", "libvirt"} {
		h := newRulesHost(t)
		h.run(testdata(t, name+".nft"))
		compare(t, name, h.look())
		before := h.reader.known[0]
		compare(t, name+", again", h.look())
		if h.reader.known[0] != before {
			t.Errorf("%s: rules that did not change were read again", name)
		}
		h.run("add table ip edgeway\nadd chain ip edgeway c { type filter hook forward priority 0; policy drop; }\n" +
			"add table inet foo\nadd chain inet foo c { type filter hook forward priority 0; policy drop; }\n" +
			"add table inet bar\nadd chain inet bar c { type filter hook forward priority 0; tcp dport 8080 reject; }\n")
		compare(t, name+", our own table, and another one", h.look(), seen{
			fault.Problem, "the policy drop of chain c (inet table foo) drops connections from outside by eth0", "nft insert rule inet foo c ct status dnat accept",
		}, seen{
			fault.Problem, `the rule 'tcp dport 8080 reject' in chain c (inet table bar) drops connections from outside by eth0`, "nft insert rule inet bar c ct status dnat accept",
		})
	}
}

// Edgeway's own tables are not findings, whichever backend runs.
func TestOwnTables(t *testing.T) {
	h := newRulesHost(t)
	for _, table := range []string{"ip edgeway", "ip6 edgeway", "ip edgeway-ipvs", "ip6 edgeway-ipvs", "ip edgeway-ebpf", "ip6 edgeway-ebpf", "inet kube-proxy-flowtable", "inet edgeway-trace"} {
		h.run(fmt.Sprintf("add table %[1]s\nadd chain %[1]s c { type filter hook forward priority 0; policy drop; }", table))
		for _, f := range h.look() {
			if f.Severity != fault.OK {
				t.Errorf("table %s: %s", table, f.Message)
			}
		}
		family, name, _ := strings.Cut(table, " ")
		to := netip.MustParseAddrPort("10.96.0.10:80")
		if fix := (Drop{Family: family, Table: name, Chain: "c", To: to, Protocol: plan.TCP}).Fix(); !strings.HasPrefix(fix, "edgeway explain") {
			t.Errorf("table %s: the fix is %q", table, fix)
		}
		h.run("delete table " + table)
	}
}

// A table that is too big is not read again and again.
func TestTooManyRules(t *testing.T) {
	var script strings.Builder
	script.WriteString("table inet huge {\nchain c {\ntype filter hook forward priority 0; policy accept;\n")
	for i := range 20_000 {
		fmt.Fprintf(&script, "ip daddr 10.%d.%d.%d tcp dport %d accept\n", 100+i>>16, i>>8&255, i&255, i)
	}
	script.WriteString("}\n}\ntable inet foo {\nchain c {\ntype filter hook forward priority 0; policy drop;\n}\n}\n")
	h := newRulesHost(t)
	h.run(script.String())
	want := []seen{
		{fault.Warning, "whether the inet table huge drops connections of Services is not known: it has too many rules", "nft list table inet huge"},
		{fault.Problem, "the policy drop of chain c (inet table foo)", "nft insert rule inet foo c ct status dnat accept"},
	}
	compare(t, "at first", h.look(), want...)
	known := maps.Clone(h.reader.tooBig)
	compare(t, "again", h.look(), want...)
	if len(known) != 1 || !maps.Equal(known, h.reader.tooBig) {
		t.Errorf("it was read again: %v, and then %v", known, h.reader.tooBig)
	}
}

// Each minute's look costs next to nothing while rules, plan and routes are the same; a change of any is seen.
func TestNothingIsAskedTwice(t *testing.T) {
	h := newRulesHost(t)
	h.run("add table inet foo\nadd chain inet foo c { type filter hook forward priority 0; policy accept; }\nadd rule inet foo c oifname eth7 drop")
	compare(t, "another link", h.look())
	first := &h.look()[0]
	if again := &h.look()[0]; again != first {
		t.Error("what has not changed was judged again")
	}
	h.run("add table ip edgeway")
	if again := &h.look()[0]; again != first {
		t.Error("a change of our own rules had those of others judged again")
	}
	h.asked.Plan = testPlan(plan.NodePort)
	if again := &h.look()[0]; again != first {
		t.Error("a plan with the same sorts of connections had the rules judged again")
	}
	h.asked.Host = behind{"eth7"}
	const says, fix = `the rule 'oifname "eth7" drop' in chain c (inet table foo) drops`, "nft insert rule inet foo c ct status dnat accept"
	compare(t, "another route", h.look(), seen{fault.Problem, says, fix})
	h.asked.Plan = testPlan(plan.ClusterIP)
	compare(t, "another plan", h.look(), seen{fault.Warning, says, fix})
	h.run("add rule inet foo c oifname eth8 drop")
	compare(t, "another rule", h.look(), seen{fault.Warning, says, fix})
	h.run("flush chain inet foo c")
	compare(t, "no rule", h.look())
}
