package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

type finding struct{ ID, Severity, Object, Message, Fix string }

// connectFindings runs `edgeway doctor --connect` and returns the findings of the given check, except findings with the
// severity "ok".
func (d *daemon) connectFindings(check string, args ...string) (out []finding) {
	d.t.Helper()
	text, errs, code := d.edgeway(append([]string{"doctor", "--json", "--connect"}, args...)...)
	var report struct{ Faults []finding }
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		d.t.Fatalf("edgeway doctor (code %d, %s): %v in %q", code, errs, err, text)
	}
	for _, f := range report.Faults {
		if f.ID == check && f.Severity != "ok" {
			out = append(out, f)
		}
	}
	return out
}

// mustBeOnlyProblem fails the test unless the only finding is a problem whose message contains all of the words.
func (d *daemon) mustBeOnlyProblem(of []finding, words ...string) finding {
	d.t.Helper()
	if len(of) != 1 || of[0].Severity != "problem" || !containsAll(of[0].Message, words) {
		d.t.Fatalf("edgeway doctor --connect says %+v, want one problem with %q", of, words)
	}
	return of[0]
}

// Some nft tables contain both a backend's rules and other programs' rules. The doctor must not report the rules with
// which a backend rejects or drops packets.
func TestDoctorIgnoresBackendRules(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			d := l.newDaemon()
			d.configure(withBackend(backend))
			n := l.newNamespace()
			_, nodePort := n.createWeb("shop")
			n.createService("empty", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
			n.setEndpoints("few", ep1Addr)
			few := n.createService("few", func(s *corev1.ServiceSpec) {
				s.Type, s.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{clientAddr + "/32"}
				s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			})
			n.setLoadBalancer(few, "203.0.113.200")
			d.startReady()
			l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
			if got := d.connectFindings("firewall", n.name+"/shop"); len(got) != 0 {
				t.Errorf("edgeway doctor says %+v", got)
			}
		})
	}
}

// The command `edgeway doctor --connect` must report whether the host or the endpoint is at fault. With --trace, the
// command must also name the rule at fault, and must leave no nft table behind.
func TestDoctorConnectsAndTraces(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	n := l.newNamespace()
	clusterIP, _ := n.createWeb("shop")
	d.startReady()
	works := answers(l.node, clusterIP, "ep1")
	l.waitFor(longTimeout, works)
	service := n.name + "/shop"
	if got := d.connectFindings("connect", service); len(got) != 0 {
		t.Fatalf("where all works edgeway doctor --connect says %+v", got)
	}

	dead := l.ep1.Command(t.Context(), "nft",
		`table inet off { chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }`)
	if out, err := dead.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d.mustBeOnlyProblem(d.connectFindings("connect", service), "cannot connect to any endpoint of "+service,
		ep1Addr+":8080 refuses connections")
	l.must(l.ep1.Command(t.Context(), "nft", "delete table inet off").Run())

	l.onNode("nft", `table inet foo { chain before { type filter hook output priority -150; ip daddr `+
		strings.TrimSuffix(clusterIP, ":80")+` tcp dport 80 drop; }; }`)
	d.mustBeOnlyProblem(d.connectFindings("connect", service), "endpoints of "+service, "The cause is in this host",
		clusterIP+" does not answer")
	early := d.mustBeOnlyProblem(d.connectFindings("trace", service, "--trace"), "tcp dport 80 drop",
		"in chain before (inet table foo) drops the connection to "+clusterIP)
	l.onNode("sh", "-ec", early.Fix)
	l.must(works())
	if tables := l.onNode("nft", "list", "tables"); strings.Contains(tables, "edgeway-trace") {
		t.Errorf("the table of the trace stays:\n%s", tables)
	}

	// The node reaches the API server at 192.0.2.1.
	l.onNode("nft", "flush chain inet foo before; add chain inet foo answers { type filter hook input priority 0; policy drop; }; "+
		"add rule inet foo answers ip saddr 192.0.2.1 accept")
	traced := d.mustBeOnlyProblem(d.connectFindings("trace", service, "--trace"),
		"the policy drop of chain answers (inet table foo) drops the answer to the connection to "+clusterIP)
	l.onNode("sh", "-ec", traced.Fix)
	l.must(works())

	l.onNode("nft", "add table inet edgeway-trace")
	d.stop()
	if out, errs, code := d.edgeway("cleanup"); code != 0 {
		t.Errorf("edgeway cleanup ended with %d: %s%s", code, out, errs)
	}
	if tables := l.onNode("nft", "list", "tables"); strings.Contains(tables, "edgeway") {
		t.Errorf("after a cleanup:\n%s", tables)
	}
}
