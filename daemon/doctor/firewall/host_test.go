package firewall

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"edgeway/daemon/doctor/finding"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

func TestMain(m *testing.M) {
	netlab.PeerMain()
	os.Exit(m.Run())
}

// rulesOf runs scripts of nft on a host of its own and gives what a Checker says there, again and again.
func rulesOf(t *testing.T) (checker *Checker, run func(script string), look func() []finding.Finding) {
	t.Helper()
	node := netlab.New(t, netlab.Options{}).Node
	run = func(script string) {
		nft := node.Command(t.Context(), "nft", "-f", "-")
		nft.Stdin = strings.NewReader(script)
		if out, err := nft.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	checker = New()
	return checker, run, func() (found []finding.Finding) {
		err := node.Do(func() error {
			found = checker.Look(t.Context(), Question{Plan: testPlan(plan.NodePort), Host: testHost{}, MasqueradeBit: 14})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
}

// What the tests read from files is what nft says of the same rules.
func TestRulesOfTheKernel(t *testing.T) {
	for _, name := range []string{"firewalld", "libvirt"} {
		checker, run, look := rulesOf(t)
		run(testdata(t, name+".nft"))
		compare(t, name, look())
		before := checker.reader.known[0]
		compare(t, name+", again", look())
		if checker.reader.known[0] != before {
			t.Errorf("%s: rules that did not change were read again", name)
		}
		run("add table inet edgeway\nadd chain inet edgeway c { type filter hook forward priority 0; policy drop; }\n" +
			"add table inet foo\nadd chain inet foo c { type filter hook forward priority 0; policy drop; }\n" +
			"add table inet bar\nadd chain inet bar c { type filter hook forward priority 0; tcp dport 8080 reject; }\n")
		compare(t, name+", our own table, and another one", look(), seen{
			finding.Problem, "the policy drop of chain c (inet table foo) drops connections from outside by eth0", "nft insert rule inet foo c ct status dnat accept",
		}, seen{
			finding.Problem, `the rule 'tcp dport 8080 reject' in chain c (inet table bar) drops connections from outside by eth0`, "nft insert rule inet bar c ct status dnat accept",
		})
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
	checker, run, look := rulesOf(t)
	run(script.String())
	want := []seen{
		{finding.Warning, "whether the inet table huge drops connections of Services is not known: it has too many rules", "nft list table inet huge"},
		{finding.Problem, "the policy drop of chain c (inet table foo)", "nft insert rule inet foo c ct status dnat accept"},
	}
	compare(t, "at first", look(), want...)
	known := maps.Clone(checker.reader.tooBig)
	compare(t, "again", look(), want...)
	if len(known) != 1 || !maps.Equal(known, checker.reader.tooBig) {
		t.Errorf("it was read again: %v, and then %v", known, checker.reader.tooBig)
	}
}
