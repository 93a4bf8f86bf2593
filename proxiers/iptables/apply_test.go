package iptables

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/plantest"
	"edgeway/proxiers/plan"
)

func startProxier(t *testing.T, v variant, drift func(string)) *proxier {
	t.Helper()
	p, err := newProxier(t.Context(), v, proxiers.Options{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), MasqueradeBit: 14,
		Drift: drift, Progress: func(int, int) {},
	})
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
	if err := p.Apply(t.Context(), proxiers.Change{Prev: prev, Next: next}); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

// kernelState is what the programs show of both families, without comments and counters, with chains in order.
func kernelState(t *testing.T, p *proxier) string {
	t.Helper()
	var lines []string
	for _, f := range p.families {
		for _, table := range tables {
			found, err := f.tools.save(t.Context(), table)
			if err != nil {
				t.Fatal(err)
			}
			where := f.String() + " " + table + " "
			for _, name := range found.chains {
				lines = append(lines, where+name)
			}
			for name, rules := range found.builtin {
				lines = append(lines, where+name+" "+strings.Join(rules, "; "))
			}
			if got, want := (total{len(found.chains), found.rules}), f.state.totals[table]; got != want {
				t.Errorf("%sthe kernel has %v, the backend knows of %v", where, got, want)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Every kind of change ends in the state that a full sync makes, and each of the tools takes it.
func TestChangesInTheKernel(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
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

// A change among many Services writes what it is about.
func TestPartialWritesWhatChanged(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		p := startProxier(t, v, func(string) {})
		many := plantest.Plan(plantest.Node(), plantest.Many(3000, 2)...)
		apply(t, p, nil, many)
		report := p.RestoreReports()[0]
		if nat := report.Tables[0]; nat.Last != nat.Total || nat.Total < 3000*3 {
			t.Errorf("a full sync wrote %d of %d rules of %s", nat.Last, nat.Total, nat.Name)
		}
		next := plantest.WithEndpoints(many, 1500, plantest.Endpoint("10.244.1.1:80"), plantest.Endpoint("10.244.1.2:80"))
		apply(t, p, many, next)
		for _, table := range p.RestoreReports()[0].Tables {
			if table.Last > 3 {
				t.Errorf("a change of two endpoints wrote %d rules of %s", table.Last, table.Name)
			}
		}
		apply(t, p, next, plantest.Plan(many.Node, next.Services[:2999]...))
		for _, table := range p.RestoreReports()[0].Tables {
			if table.Last > 2*leafSize {
				t.Errorf("the removal of a Service wrote %d rules of %s", table.Last, table.Name)
			}
		}
	})
}

// When somebody took away what a partial sync builds on, it fails as a whole, and a full one mends all.
func TestPartialOverLostChains(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		p := startProxier(t, v, func(string) {})
		base := plantest.Plan(plantest.Node(), plantest.Web()...)
		apply(t, p, nil, base)
		whole := kernelState(t, p)
		f := p.families[0]
		if err := f.tools.cleanup(t.Context(), testLogger(t)); err != nil {
			t.Fatal(err)
		}
		web := slices.IndexFunc(base.Services, func(s *plan.ServicePort) bool { return s.Name.Name == "web" })
		next := plantest.WithEndpoints(base, web, plantest.LocalEndpoint("10.244.0.9:80"))
		err := p.Apply(t.Context(), proxiers.Change{Prev: base, Next: next})
		if !errors.Is(err, proxiers.ErrRefused) {
			t.Errorf("a partial sync over nothing: %v", err)
		}
		if r := p.RestoreReports()[0]; r.Failures != 1 || r.PartialFailures != 1 {
			t.Errorf("%d failures, %d of them partial", r.Failures, r.PartialFailures)
		}
		apply(t, p, base, next) // the state is unknown: a full sync all the same
		apply(t, p, next, base)
		if now := kernelState(t, p); now != whole {
			t.Errorf("afterwards\n%s\nbefore\n%s", now, whole)
		}
	})
}

// Rules and chains of a kube-proxy of the same names make room, and others stay.
func TestTakesOverFromKubeProxy(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		p := startProxier(t, v, func(string) {})
		err := p.families[0].tools.restore(t.Context(), []byte(strings.Join([]string{
			"*nat", ":KUBE-SERVICES - [0:0]", ":KUBE-SVC-OLD - [0:0]", ":DOCKER - [0:0]", ":KUBE-FIREWALL - [0:0]",
			"-A KUBE-SERVICES -d 10.96.0.99/32 -j KUBE-SVC-OLD",
			`-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
			"-A PREROUTING -j DOCKER", "-A OUTPUT -j KUBE-FIREWALL", "COMMIT", "",
		}, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		apply(t, p, nil, plantest.Plan(plantest.Node(), plantest.Web()...))
		found, err := p.families[0].tools.save(t.Context(), tableNAT)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(found.chains, "KUBE-SVC-OLD") || !slices.Contains(found.chains, "DOCKER") || !slices.Contains(found.chains, "KUBE-FIREWALL") {
			t.Errorf("chains: %q", found.chains)
		}
		if got := found.builtin["PREROUTING"]; len(got) != 2 || target(got[0]) != chainServices || target(got[1]) != "DOCKER" || !strings.Contains(got[0], owner) {
			t.Errorf("PREROUTING: %q", got)
		}
		if got := found.builtin["OUTPUT"]; len(got) != 2 || target(got[1]) != "KUBE-FIREWALL" {
			t.Errorf("OUTPUT: %q", got)
		}
	})
}

// The programs show our rules in built-in chains as we write them, so that a full sync sees that they are there.
func TestRulesInBuiltinChainsAreRecognised(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		p := startProxier(t, v, func(string) {})
		apply(t, p, nil, plantest.Plan(plantest.Node(), plantest.Web()...))
		for _, f := range p.families {
			for _, h := range hooks() {
				found, err := f.tools.save(t.Context(), h.table)
				if err != nil {
					t.Fatal(err)
				}
				if got := found.builtin[h.chain]; !slices.Equal(got, h.rules) {
					t.Errorf("%s %s %s has %q, want %q", f.Family, h.table, h.chain, got, h.rules)
				}
			}
		}
	})
}
