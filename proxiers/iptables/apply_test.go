package iptables

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
	"edgeway/test/plantest"
)

func startProxier(t *testing.T, v xtables.Variant, drift func(string)) *proxier {
	t.Helper()
	env := testEnv(t)
	env.Drift = drift
	p, err := newProxier(t.Context(), v, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p.(*proxier)
}

func apply(t *testing.T, p proxiers.Applier, prev, next *plan.Plan) {
	t.Helper()
	if err := p.Apply(t.Context(), proxiers.NewChange(prev, next)); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func kernelState(t *testing.T, p *proxier) string {
	t.Helper()
	var lines []string
	for _, f := range p.families {
		for _, table := range tables() {
			now, err := read(t.Context(), f.Tools, table)
			if err != nil {
				t.Fatal(err)
			}
			where := f.Family.String() + " " + table + " "
			for _, id := range now.chains {
				lines = append(lines, where+id.Name)
			}
			for name, rules := range now.jumps {
				lines = append(lines, where+name+" "+strings.Join(rules, "; "))
			}
			if got, want := (total{len(now.chains), now.rules}), f.state.totals[table]; got != want {
				t.Errorf("%sthe kernel has %v, the backend knows of %v", where, got, want)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// For both variants and each kind of change, a partial sync has the same result as a full sync.
func TestPartialSyncEqualsFullSync(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		var drift []string
		p := startProxier(t, v, func(reason string) { drift = append(drift, reason) })
		for _, c := range plantest.Changes() {
			apply(t, p, nil, c.Prev)
			apply(t, p, c.Prev, c.Next)
			partial := kernelState(t, p)
			apply(t, p, nil, c.Next)
			if full := kernelState(t, p); partial != full {
				t.Errorf("%s: after a partial sync\n%s\nafter a full one\n%s", c.Name, partial, full)
			}
		}
		if len(drift) > 0 {
			t.Errorf("drift reported for our own changes: %q", drift)
		}
	})
}

// A change to one of many Services rewrites only that Service's rules.
func TestPartialSyncWritesOnlyChanges(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		p := startProxier(t, v, func(string) {})
		many := plantest.Plan(plantest.Node(), plantest.ManyServices(3000, 2)...)
		apply(t, p, nil, many)
		f := p.families[0]
		if n := f.last[xtables.NAT]; n != f.kernel[xtables.NAT].rules || n < 3000*3 {
			t.Errorf("a full sync wrote %d of %d rules", n, f.kernel[xtables.NAT].rules)
		}
		next := plantest.WithEndpoints(many, 1500, plantest.Endpoint("10.244.1.1:80"),
			plantest.Endpoint("10.244.1.2:80"))
		apply(t, p, many, next)
		for table, n := range f.last {
			if n > 3 {
				t.Errorf("a change of two endpoints wrote %d rules of %s", n, table)
			}
		}
		apply(t, p, next, plantest.Plan(many.Node, next.Services[:2999]...))
		for table, n := range f.last {
			if n > 2*leafSize {
				t.Errorf("the removal of a Service wrote %d rules of %s", n, table)
			}
		}
	})
}

// If another program has deleted chains that a partial sync needs, the sync fails and changes nothing. A full sync
// repairs the tables.
func TestPartialSyncFailsOverLostChains(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		p := startProxier(t, v, func(string) {})
		base := plantest.Plan(plantest.Node(), plantest.SampleServices()...)
		apply(t, p, nil, base)
		whole := kernelState(t, p)
		if err := cleanup(t.Context(), v, testEnv(t)); err != nil {
			t.Fatal(err)
		}
		web := slices.IndexFunc(base.Services, func(s *plan.ServicePort) bool { return s.Name.Name == "web" })
		next := plantest.WithEndpoints(base, web, plantest.LocalEndpoint("10.244.0.9:80"))
		err := p.Apply(t.Context(), proxiers.NewChange(base, next))
		if !errors.Is(err, proxiers.ErrRefused) {
			t.Errorf("a partial sync over nothing: %v", err)
		}
		if f := p.families[0]; f.failures != 1 || f.partialFailures != 1 {
			t.Errorf("%d failures, %d of them partial", f.failures, f.partialFailures)
		}
		apply(t, p, nil, next)
		apply(t, p, next, base)
		if now := kernelState(t, p); now != whole {
			t.Errorf("afterwards\n%s\nbefore\n%s", now, whole)
		}
	})
}

// A full sync replaces kube-proxy's rules and its chains, whose names are the same as Edgeway's. All other rules and
// chains remain.
func TestTakesOverFromKubeProxy(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		p := startProxier(t, v, func(string) {})
		iptablestest.Restore(t, v, plan.IPv4, xtables.NAT,
			":KUBE-SERVICES - [0:0]", ":KUBE-SVC-OLD - [0:0]", ":DOCKER - [0:0]", ":KUBE-FIREWALL - [0:0]",
			"-A KUBE-SERVICES -d 10.96.0.99/32 -j KUBE-SVC-OLD",
			`-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
			"-A PREROUTING -j DOCKER", "-A OUTPUT -j KUBE-FIREWALL")
		apply(t, p, nil, plantest.Plan(plantest.Node(), plantest.SampleServices()...))
		saved := iptablestest.Ruleset(t, v, plan.IPv4)
		for text, want := range map[string]bool{
			":KUBE-SVC-OLD ": false, "kubernetes service portals": false,
			":DOCKER ": true, ":KUBE-FIREWALL ": true, "-A OUTPUT -j KUBE-FIREWALL\n": true,
			"-A PREROUTING -m comment --comment \"edgeway: Services\" -j KUBE-SERVICES\n-A PREROUTING -j DOCKER\n": true,
		} {
			if strings.Contains(saved, text) != want {
				t.Errorf("%q: want %v in\n%s", text, want, saved)
			}
		}
	})
}

// A full sync recognizes Edgeway's rules in built-in chains, because iptables-save prints the same text that Edgeway
// wrote.
func TestRulesInBuiltinChainsAreRecognized(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		p := startProxier(t, v, func(string) {})
		apply(t, p, nil, plantest.Plan(plantest.Node(), plantest.SampleServices()...))
		for _, f := range p.families {
			for _, h := range hooks(testEnv(t).MasqueradeBit) {
				now, err := read(t.Context(), f.Tools, h.Table)
				if err != nil {
					t.Fatal(err)
				}
				if got := now.jumps[h.Name]; !slices.Equal(got, h.Rules) {
					t.Errorf("%s %s %s has %q, want %q", f.Family, h.Table, h.Name, got, h.Rules)
				}
			}
		}
	})
}
