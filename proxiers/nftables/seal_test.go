package nftables

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// unclosed makes a backend that the test closes itself.
func unclosed(t *testing.T, programsOnly bool) *proxier {
	t.Helper()
	s := schema()
	s.Idle = 0
	p, err := newProxier(s, proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: []plan.Family{plan.IPv4, plan.IPv6}, MasqueradeBit: 14,
		Drift: func(reason string) { t.Logf("drift: %s", reason) }, Progress: func(int, int) {}, ProgramsOnly: programsOnly,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// restart closes the backend, lets another program run a script, if any, and starts a backend on what is there. It says
// whether that one has written rules, as a full sync does that knows nothing of the tables.
func restart(t *testing.T, p *proxier, script string, next *plan.Plan) (started *proxier, wrote bool) {
	t.Helper()
	closed(t, p)
	if script != "" {
		nft(t, script)
	}
	rules := ruleHandles(t)
	started = unclosed(t, false)
	apply(t, started, nil, next)
	if list := nft(t, "list table ip edgeway"); strings.Contains(list, "unchanged-") {
		t.Errorf("the seal is still there:\n%s", list)
	}
	return started, !slices.Equal(rules, ruleHandles(t))
}

func closed(t *testing.T, p *proxier) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// What nobody has touched since it was left is not written anew, whatever came before, and later changes fit.
func TestRestartOfWhatIsUnchanged(t *testing.T) {
	full, next := endpointChange()
	many := newPlan(testNode(), manyServices(1500, 5)...)
	for name, plans := range map[string][]*plan.Plan{
		"after a first sync": {next}, "after full syncs": {full, nil, next}, "after a change": {full, next},
		"after a big change": {many, next}, "with many Services": {many},
	} {
		t.Run(name, func(t *testing.T) {
			newHost(t)
			p := unclosed(t, false)
			var prev *plan.Plan
			for _, next := range plans {
				if next != nil {
					apply(t, p, prev, next)
				}
				prev = next
			}
			want := kernelElements(t, p)
			p, wrote := restart(t, p, "", prev)
			if wrote {
				t.Error("rules were written")
			}
			apply(t, p, prev, full)
			apply(t, p, full, prev)
			if diff := firstDifference(want, kernelElements(t, p)); diff != "" {
				t.Error(diff)
			}
			p, wrote = restart(t, p, "", prev)
			if wrote {
				t.Error("rules were written by the second restart")
			}
			closed(t, p)
		})
	}
}

// After a transaction of another program, whatever it was about, and for another plan, tables are compared and mended.
func TestRestartOfWhatIsChanged(t *testing.T) {
	full, next := endpointChange()
	for name, c := range map[string]struct {
		script string
		next   *plan.Plan
	}{
		"another plan":         {"", next},
		"an element is gone":   {"delete element ip edgeway cluster-ips { 10.96.0.3 }", full},
		"a rule is gone":       {"flush chain ip edgeway services", full},
		"something else's":     {"add table ip other\ndelete table ip other", full},
		"a seal of that name":  {"add chain ip edgeway unchanged-0123456789abcdef0123456789abcdef", full},
		"the tables are older": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			newHost(t)
			p := unclosed(t, false)
			apply(t, p, nil, full)
			if c.next == nil { // another program loads them from a list of the time before
				old := nft(t, "list ruleset")
				apply(t, p, full, next)
				c.next, c.script = next, "flush ruleset\n"+old
			}
			p, wrote := restart(t, p, c.script, c.next)
			if !wrote {
				t.Error("the tables were taken as they were")
			}
			got := kernelState(t, p)
			recreate(t, p, c.next)
			if diff := firstDifference(kernelState(t, p), got); diff != "" {
				t.Errorf("not mended: %s", diff)
			}
			closed(t, p)
		})
	}
}

// What another program touched before the end is not sealed, and neither is what the program nft alone writes.
func TestNoSealOfWhatIsNotKnown(t *testing.T) {
	full, _ := endpointChange()
	for name, c := range map[string]struct {
		programsOnly bool
		script       string
	}{
		"touched":       {false, "delete element ip edgeway cluster-ips { 10.96.0.3 }"},
		"programs only": {true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			newHost(t)
			p := unclosed(t, c.programsOnly)
			apply(t, p, nil, full)
			if c.script != "" {
				nft(t, c.script)
			}
			closed(t, p)
			if list := nft(t, "list ruleset"); strings.Contains(list, "unchanged-") {
				t.Errorf("a seal:\n%s", list)
			}
		})
	}
}
