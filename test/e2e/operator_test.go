package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// fault returns the fault that has the given ID and severity and whose message contains all of the words, and fails the
// test if the status reports no such fault.
func (d *daemon) fault(id, severity string, words ...string) (f finding) {
	d.t.Helper()
	d.waitFor(longTimeout, func() error {
		out, errs, _ := d.edgeway("status", "--json")
		var s struct{ Faults []finding }
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			return fmt.Errorf("%w in %q %s", err, out, errs)
		}
		for _, f = range s.Faults {
			if f.ID == id && f.Severity == severity && containsAll(f.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("edgeway status has no %s %s with %q:\n%s", severity, id, words, out)
	})
	return f
}

func (d *daemon) without(id string) {
	d.t.Helper()
	d.waitFor(longTimeout, func() error {
		if out, _, _ := d.edgeway("status"); strings.Contains(out, id) {
			return fmt.Errorf("edgeway status has still %s:\n%s", id, out)
		}
		return nil
	})
}

// applySetting writes the setting that a fix suggests into a configuration drop-in, and reloads the daemon.
func (d *daemon) applySetting(setting string) {
	d.t.Helper()
	file := filepath.Join(d.dir, "conf.d", "fix.toml")
	d.must(os.MkdirAll(filepath.Dir(file), 0o755))
	d.must(os.WriteFile(file, []byte(setting+"\n"), 0o600))
	if out, errs, code := d.edgeway("reload"); code != 0 {
		d.t.Fatalf("edgeway reload ended with %d: %s%s", code, out, errs)
	}
}

func (l *lab) on(h *netlab.Host, name string, args ...string) {
	l.t.Helper()
	if out, err := h.Command(l.t.Context(), name, args...).CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %s %v: %v\n%s", h.Name, name, args, err, out)
	}
}

// connectNeighbor connects the node and ep1 to a common network, and returns the address of a server on ep1.
func (l *lab) connectNeighbor() string {
	l.t.Helper()
	l.onNode("ip", "addr", "add", "198.51.100.1/24", "dev", "ep1")
	l.on(l.ep1, "ip", "addr", "add", "198.51.100.9/24", "dev", "eth0")
	to := netip.MustParseAddrPort("198.51.100.9:8080")
	l.must(l.ep1.Serve("neighbor", to, plan.TCP))
	return to.String()
}

// answersHost returns an error unless the server responds to a connection from the node. The kernel chooses the source
// address.
func (l *lab) answersHost(addr, server string) func() error {
	f := netlab.Flow{
		Protocol: plan.TCP, To: netip.MustParseAddrPort(addr), Wait: dialTimeout, ReplyWait: replyTimeout,
	}
	return func() error {
		if got := l.node.Connect(f); got.Server != server {
			return fmt.Errorf("TCP from the host to %s: %s, want served by %q", addr, got, server)
		}
		return nil
	}
}

// If a rule on the host rejects connections or drops the responses, `edgeway doctor --connect --trace` must name the
// rule, and must not blame the endpoint. After the operator applies the printed fix, the doctor must report no problem.
func TestTraceNamesHostRules(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	n, clusterIP, _ := d.shop()
	service := n.name + "/shop"
	for name, c := range map[string]struct{ rules, words string }{
		"INPUT drops the answers": {
			"chain c { type filter hook input priority 0; policy drop; ip saddr 192.0.2.1 accept; }",
			"the policy drop of chain c (inet table foo) drops the answer",
		},
		"OUTPUT drops":            {"chain c { type filter hook output priority 0; policy drop; ip daddr 192.0.2.1 accept; }", "the policy drop of chain c"},
		"OUTPUT rejects":          {"chain c { type filter hook output priority 0; tcp dport 8080 reject; }", "the rule 'tcp dport 8080 reject'"},
		"OUTPUT resets":           {"chain c { type filter hook output priority 0; tcp dport 8080 reject with tcp reset; }", "with tcp reset'"},
		"OUTPUT says unreachable": {"chain c { type filter hook output priority 0; tcp dport 8080 reject with icmpx admin-prohibited; }", "admin-prohibited'"},
	} {
		l.onNode("nft", "table inet foo { "+c.rules+"; }")
		l.must(isUnanswered(l.node, clusterIP)())
		for _, f := range d.connectFindings("connect", service) {
			if !strings.HasPrefix(f.Fix, "edgeway doctor --connect "+service+" --trace") {
				t.Errorf("%s: without a trace the doctor says %+v", name, f)
			}
		}
		if got := d.connectFindings("connect", service, "--trace"); len(got) > 0 {
			t.Errorf("%s: beside the rule the doctor says %+v", name, got)
		}
		f := d.mustBeOnlyProblem(d.connectFindings("trace", service, "--trace"), c.words)
		l.onNode("sh", "-ec", f.Fix)
		l.must(answers(l.node, clusterIP, "ep1")())
		if got := append(
			d.connectFindings("connect", service, "--trace"),
			d.connectFindings("trace", service, "--trace")...); len(
			got,
		) > 0 {
			t.Errorf("%s: after the fix the doctor says %+v", name, got)
		}
		l.onNode("nft", "delete table inet foo")
	}
}

// If a configured ClusterIP range covers one of the host's networks, the host must still reach its neighbors on that
// network.
func TestServiceRangeCoveringHostNetwork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	neighbor := l.connectNeighbor()
	d := l.newDaemon()
	d.watchOnly(l.newNamespace())
	d.configure("[proxy]\nservice_cidrs = [\"198.51.100.0/25\"]\n")
	d.startReady()
	l.must(l.answersHost(neighbor, "neighbor")())
	const words = "198.51.100.0/25 overlaps 198.51.100.0/24"
	f := d.fault("service-range-network", "problem", words)
	if out, errs, _ := d.edgeway("config", "check"); !containsAll(errs, []string{words, f.Fix}) {
		t.Errorf("edgeway config check does not say the same:\n%s%s", out, errs)
	}
	d.configure("")
	d.applySetting(f.Fix)
	d.without("service-range-network")
	d.waitFor(longTimeout, d.statusPrints("healthy"))

	l.onNode("ip", "route", "add", "10.64.0.0/10", "via", "198.51.100.9")
	d.applySetting(`proxy.service_cidrs = ["10.100.0.0/24"]`)
	f = d.fault("service-range-route", "notice", "10.100.0.0/24 overlaps the route to 10.64.0.0/10 via 198.51.100.9")
	d.must(d.statusPrints("healthy")())
	if out, errs, code := d.edgeway(
		"config",
		"check",
	); code != 0 ||
		!strings.Contains(errs, "NOTICE: "+"proxy.service_cidrs: "+f.Message) {
		t.Errorf("edgeway config check ended with %d:\n%s%s", code, out, errs)
	}
	l.onNode("ip", "route", "del", "10.64.0.0/10")
	d.without("service-range-route")
}
