package iptables

import (
	"flag"
	"reflect"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

var update = flag.Bool("update", false, "write the golden files")

func initial(f plan.Family, p *plan.Plan) (*state, *xtables.Input) {
	s, in := newState(rendererFor(f, p.Node)), xtables.NewInput()
	for _, c := range constants(14, true) {
		s.write(in, c)
	}
	for _, sp := range p.Services {
		s.replace(in, serviceChange{after: s.render(sp)})
	}
	s.finish(in, p)
	return s, in
}

func TestFullInput(t *testing.T) {
	p := plantest.Plan(plantest.Node(), plantest.SampleServices()...)
	p.HealthChecks = []*plan.HealthCheck{{Namespace: "default", Name: "local", Port: 32000, LocalReady: 1}}
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		_, in := initial(f, p)
		plantest.CompareGolden(t, *update, "full-"+f.String(), string(in.Bytes()))
	}
}

func TestPartialInputs(t *testing.T) {
	for _, c := range plantest.Changes() {
		t.Run(c.Name, func(t *testing.T) {
			var text strings.Builder
			for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
				s, _ := initial(f, c.Prev)
				if !reflect.DeepEqual(s.renderer, rendererFor(f, c.Next.Node)) {
					text.WriteString("# " + f.String() + ": a full sync\n")
					continue
				}
				in := xtables.NewInput()
				s.writeDifference(in, proxiers.NewChange(c.Prev, c.Next))
				text.WriteString("# " + f.String() + "\n" + string(in.Bytes()))
			}
			plantest.CompareGolden(t, *update, "partial-"+c.Name, text.String())
		})
	}
}

func TestTotals(t *testing.T) {
	for _, c := range plantest.Changes() {
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			walked, _ := initial(f, c.Prev)
			walked.writeDifference(xtables.NewInput(), proxiers.NewChange(c.Prev, c.Next))
			if fresh, _ := initial(f, c.Next); reflect.DeepEqual(walked.renderer, fresh.renderer) &&
				(walked.totals[xtables.NAT] != fresh.totals[xtables.NAT] ||
					walked.totals[xtables.Filter] != fresh.totals[xtables.Filter]) {
				t.Errorf("%s, %s: %v after the change, %v from the start", c.Name, f, walked.totals, fresh.totals)
			}
		}
	}
}

func TestCommentsAreEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"default/web:http ClusterIP":   "default/web:http ClusterIP",
		"a\"\n-A INPUT -j DROP\nb":     "a__-A INPUT -j DROP_b",
		`\" -j ACCEPT`:                 "__ -j ACCEPT",
		"ümlaut*":                      "_mlaut_",
		strings.Repeat("x", 300):       strings.Repeat("x", maxComment),
		"COMMIT\n*filter\n:INPUT DROP": "COMMIT__filter_:INPUT DROP",
	} {
		if got := sanitize(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzComment(f *testing.F) {
	f.Add("default/web\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := comment(text)
		inner, begins := strings.CutPrefix(c, `-m comment --comment "`)
		inner, ends := strings.CutSuffix(inner, `"`)
		if !begins || !ends || strings.ContainsAny(inner, "\"'\\\n\r\x00") || len(inner) > maxComment {
			t.Errorf("%q became %q", text, c)
		}
	})
}

func TestOurs(t *testing.T) {
	for name, want := range map[string]bool{
		"KUBE-SERVICES": true, "KUBE-SERVICES-5a": true, "KUBE-SVC-ABC": true, "KUBE-EXT-X": true, "KUBE-MARK-MASQ": true,
		"KUBE-NODEPORTS-8475": true, "KUBE-LOOPBACK-UDP": true, "KUBE-FIREWALL": false, "KUBE-KUBELET-CANARY": false,
		"KUBE-SERVICES-xyz": false, "DOCKER": false, "": false, "KUBE": false, "KUBE-FW-X": true,
	} {
		if isOwnChain(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}
