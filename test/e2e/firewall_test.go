package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// found is what tests read of one line of `edgeway doctor --json`.
type found struct{ Check, Level, Seen, Mend string }

// doctor gives the findings of these checks that are not "ok".
func (d *daemon) doctor(check string, args ...string) (out []found) {
	d.t.Helper()
	text, errs, code := d.edgeway(append([]string{"doctor", "--json"}, args...)...)
	var report struct{ Findings []found }
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		d.t.Fatalf("edgeway doctor (code %d, %s): %v in %q", code, errs, err, text)
	}
	for _, f := range report.Findings {
		if f.Check == check && f.Level != "ok" {
			out = append(out, f)
		}
	}
	return out
}

// mend wants one finding, of a problem, that says all words, and runs the command that mends it.
func (d *daemon) mend(of []found, words ...string) {
	d.t.Helper()
	if len(of) != 1 || of[0].Level != "problem" || !containsAll(of[0].Seen, words) {
		d.t.Fatalf("edgeway doctor says %+v, want one problem with %q", of, words)
	}
	d.onNode("sh", "-c", of[0].Mend)
}

// poke has the daemon look at the host: its network has changed.
func (d *daemon) poke() {
	d.t.Helper()
	d.onNode("ip", "route", "replace", "198.18.0.0/24", "via", "192.0.2.1")
	d.onNode("ip", "route", "del", "198.18.0.0/24")
}

// statusIs wants an exit code of `edgeway status`, and words.
func (d *daemon) statusIs(want int, words ...string) func() error {
	return func() error {
		out, errs, code := d.edgeway("status")
		if code != want || !containsAll(out, words) {
			return fmt.Errorf("edgeway status ended with %d, want %d and %q:\n%s%s", code, want, words, out, errs)
		}
		return nil
	}
}

// A connection from outside to a NodePort is forwarded; a table of somebody else drops it. Status names whose it is, and
// the doctor's command mends it.
func TestAForeignDropIsNamedAndMended(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant [][]string
		words []string
	}{
		"another table of nftables": {[][]string{
			{"nft", "add table inet foo"},
			{"nft", "add chain inet foo fwd { type filter hook forward priority 10; policy drop; }"},
			{"nft", "add rule inet foo fwd ct state established,related accept"},
		}, []string{"the policy drop of chain fwd (inet table foo)"}},
		"a rule in another table of nftables": {[][]string{
			{"nft", "add table ip foo"},
			{"nft", "add chain ip foo fwd { type filter hook forward priority 10; }"},
			{"nft", "add rule ip foo fwd ip daddr 10.244.0.0/16 tcp dport 8080 drop"},
		}, []string{`the rule "ip daddr 10.244.0.0/16 tcp dport 8080 drop" in chain fwd (ip table foo)`}},
		"iptables-nft": {[][]string{{"iptables-nft", "-P", "FORWARD", "DROP"}}, []string{"the policy drop of chain FORWARD (table filter of iptables-nft)"}},
		"iptables-legacy, as Docker has it": {[][]string{
			{"iptables-legacy", "-N", "DOCKER-USER"},
			{"iptables-legacy", "-A", "FORWARD", "-j", "DOCKER-USER"},
			{"iptables-legacy", "-P", "FORWARD", "DROP"},
		}, []string{"Docker's policy drop of chain FORWARD (table filter of iptables-legacy)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			d := l.newDaemon()
			_, nodePort := l.namespace().web("shop")
			d.startReady()
			l.within(patience, answers(l.client, nodePort, "ep1"))
			if got := d.doctor("firewall"); len(got) != 0 {
				t.Fatalf("of a host without other rules edgeway doctor says %+v", got)
			}
			for _, command := range c.plant {
				l.onNode(command[0], command[1:]...)
			}
			l.must(silent(l.client, nodePort)())
			d.poke()
			l.within(2*patience, d.statusIs(4, c.words...))
			d.mend(d.doctor("firewall"), append(c.words, "drops connections from outside by eth0 to ")...)
			l.must(answers(l.client, nodePort, "ep1")())
			if got := d.doctor("firewall"); len(got) != 0 {
				t.Errorf("of a mended host edgeway doctor says %+v", got)
			}
			d.poke()
			l.within(2*patience, func() error {
				if out, _, _ := d.edgeway("status"); containsAny(out, c.words) {
					return fmt.Errorf("edgeway status still says %q:\n%s", c.words, out)
				}
				return nil
			})
		})
	}
}

// --connect says on which side the fault lies, and --trace names the rule. Nothing of the trace stays.
func TestDoctorConnectsAndTraces(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	n := l.namespace()
	clusterIP, _ := n.web("shop")
	d.startReady()
	l.within(patience, answers(l.node, clusterIP, "ep1"))
	service := n.name + "/shop"
	if got := d.doctor("connect", "--connect", service); len(got) != 0 {
		t.Fatalf("where all works edgeway doctor --connect says %+v", got)
	}

	dead := l.ep1.Command(t.Context(), "nft", `table inet off { chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }`)
	if out, err := dead.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := d.doctor("connect", "--connect", service)
	if len(got) != 1 || !containsAll(got[0].Seen, []string{"no endpoint of " + service, ep1Addr + ":8080 refuses connections"}) {
		t.Errorf("with a dead endpoint edgeway doctor --connect says %+v", got)
	}
	l.must(l.ep1.Command(t.Context(), "nft", "delete table inet off").Run())

	l.onNode("nft", `table inet foo { chain before { type filter hook output priority -150; ip daddr `+strings.TrimSuffix(clusterIP, ":80")+` tcp dport 80 drop; }; }`)
	got = d.doctor("connect", "--connect", service)
	if len(got) != 1 || !containsAll(got[0].Seen, []string{"endpoints of " + service, "The fault lies on this host", clusterIP + " does not answer"}) {
		t.Errorf("with a rule that drops, edgeway doctor --connect says %+v", got)
	}
	traced := d.doctor("trace", "--connect", service, "--trace")
	if len(traced) != 1 || !containsAll(traced[0].Seen, []string{"tcp dport 80 drop", "in chain before (inet table foo) drops the connection to " + clusterIP}) {
		t.Fatalf("the trace says %+v", traced)
	}
	if tables := l.onNode("nft", "list", "tables"); strings.Contains(tables, "edgeway-trace") {
		t.Errorf("the table of the trace stays:\n%s", tables)
	}
	l.onNode("nft", "flush chain inet foo before")
	l.onNode("nft", "add chain inet foo answers { type filter hook input priority 0; policy drop; }; add rule inet foo answers ip saddr 192.0.2.1 accept")
	traced = d.doctor("trace", "--connect", service, "--trace")
	d.mend(traced, "the policy drop of chain answers (inet table foo) drops the answer to the connection to "+clusterIP)
	l.must(answers(l.node, clusterIP, "ep1")())

	l.onNode("nft", "add table inet edgeway-trace")
	d.stop()
	if out, errs, code := d.edgeway("cleanup"); code != 0 {
		t.Errorf("edgeway cleanup ended with %d: %s%s", code, out, errs)
	}
	if tables := l.onNode("nft", "list", "tables"); strings.Contains(tables, "edgeway") {
		t.Errorf("after a cleanup:\n%s", tables)
	}
}
