package iptables

import (
	"fmt"
	"strings"
	"testing"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
)

var ownRules = map[string][]string{
	xtables.NAT: {
		":KUBE-SERVICES - [0:0]", ":KUBE-SERVICES-1 - [0:0]", ":KUBE-SVC-A - [0:0]", ":KUBE-POSTROUTING - [0:0]",
		`-I PREROUTING -m comment --comment "edgeway: Services" -j KUBE-SERVICES`,
		`-I OUTPUT -m comment --comment "edgeway: Services" -j KUBE-SERVICES`,
		`-I POSTROUTING -m comment --comment "edgeway: masquerade" -j KUBE-POSTROUTING`,
		"-A KUBE-SERVICES -d 0.0.0.1/0.0.0.15 -j KUBE-SERVICES-1",
		"-A KUBE-SERVICES-1 -j KUBE-SVC-A",
		"-A KUBE-SVC-A -p tcp -j DNAT --to-destination 192.0.2.2:80",
		"-A KUBE-POSTROUTING -j MASQUERADE --random-fully",
	},
	xtables.Filter: {
		":KUBE-FORWARD - [0:0]",
		`-I FORWARD -m comment --comment "edgeway: forwarding" -j KUBE-FORWARD`,
		"-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
	},
}

func writeOwn(t *testing.T, v xtables.Variant, f plan.Family) {
	t.Helper()
	for table, lines := range ownRules {
		text := strings.Join(lines, "\n")
		if f == plan.IPv6 {
			text = strings.NewReplacer("0.0.0.1/0.0.0.15", "::1/::f", "192.0.2.2:80", "[2001:db8::2]:80").Replace(text)
		}
		iptablestest.Restore(t, v, f, table, text)
	}
}

func cleanupBackend(t *testing.T, v xtables.Variant) {
	t.Helper()
	if err := testComponent(t, backendName(v)).Cleanup(t.Context(), testEnv(t)); err != nil {
		t.Fatalf("cleanup: %v", err)
	}
}

// Cleanup keeps empty tables and empty built-in chains, as "iptables -F" does.
func TestCleanupLeavesNoRule(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		for _, f := range families {
			writeOwn(t, v, f)
		}
		cleanupBackend(t, v)
		for _, f := range families {
			for line := range strings.Lines(iptablestest.Ruleset(t, v, f)) {
				if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":") &&
					!strings.HasSuffix(line, " ACCEPT\n") {
					t.Errorf("%s: left %q", f, line)
				}
			}
		}
		after := iptablestest.NFTRuleset(t)
		cleanupBackend(t, v)
		if again := iptablestest.NFTRuleset(t); again != after {
			t.Errorf("a second time: before %q, after %q", after, again)
		}
	})
}

func TestCleanupKeepsOtherRules(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		iptablestest.Restore(t, v, plan.IPv4, xtables.NAT, ":DOCKER - [0:0]", ":KUBE-FIREWALL - [0:0]",
			"-A PREROUTING -j DOCKER",
			`-A OUTPUT -m comment --comment "made by hand for edgeway" -j ACCEPT`, "-A DOCKER -j RETURN",
			"-A KUBE-FIREWALL -j RETURN")
		iptablestest.Restore(t, v, plan.IPv4, xtables.Filter, ":FORWARD DROP [0:0]")
		before := iptablestest.Ruleset(t, v, plan.IPv4)
		other := xtables.NFT
		if v == xtables.NFT {
			other = xtables.Legacy
		}
		writeOwn(t, other, plan.IPv4)
		kept := iptablestest.Ruleset(t, other, plan.IPv4)
		writeOwn(t, v, plan.IPv4)
		cleanupBackend(t, v)
		if after := iptablestest.Ruleset(t, v, plan.IPv4); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if after := iptablestest.Ruleset(t, other, plan.IPv4); after != kept {
			t.Errorf("iptables-%s before:\n%s\nafter:\n%s", other, kept, after)
		}
	})
}

// Cleanup keeps chains with Edgeway's names if only other programs' rules jump to them.
func TestCleanupKeepsKubeProxyRules(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		for table, lines := range ownRules {
			iptablestest.Restore(t, v, plan.IPv4, table,
				strings.ReplaceAll(strings.Join(lines, "\n"), "edgeway:", "kubernetes"))
		}
		before := iptablestest.Ruleset(t, v, plan.IPv4)
		cleanupBackend(t, v)
		if after := iptablestest.Ruleset(t, v, plan.IPv4); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		// If kube-proxy starts after Edgeway, kube-proxy uses the same chains as Edgeway.
		jump := `PREROUTING -m comment --comment "edgeway: Services" -j KUBE-SERVICES`
		iptablestest.Restore(t, v, plan.IPv4, xtables.NAT, "-A "+jump)
		cleanupBackend(t, v)
		if after := iptablestest.Ruleset(t, v, plan.IPv4); after != before {
			t.Errorf("with a jump of ours, before:\n%s\nafter:\n%s", before, after)
		}
	})
}

func TestCleanupWithoutPrograms(t *testing.T) {
	iptablestest.NewHost(t)
	iptablestest.RestrictPrograms(t, nil)
	for _, v := range xtables.Variants() {
		cleanupBackend(t, v)
	}
}

func TestCleanupDuringOtherChanges(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		const rounds = 50
		iptablestest.Restore(t, v, plan.IPv4, xtables.NAT, ":OTHER - [0:0]")
		writeOwn(t, v, plan.IPv4)
		wait := iptablestest.StartScript(t, fmt.Sprintf("for i in $(seq %d); do iptables-%s --wait -t nat -A OTHER -j ACCEPT || exit 1; done", rounds, v))
		for range 5 {
			cleanupBackend(t, v)
			writeOwn(t, v, plan.IPv4)
		}
		cleanupBackend(t, v)
		wait()
		got := iptablestest.Ruleset(t, v, plan.IPv4)
		if n := strings.Count(got, "-A OTHER -j ACCEPT"); n != rounds || strings.Contains(got, "KUBE-") {
			t.Errorf("%d rules of the other program, want %d and none of ours:\n%s", n, rounds, got)
		}
	})
}

// After "iptables -F", no rule identifies the owner of the chains, so Cleanup deletes empty chains.
func TestCleanupOfEmptiedChains(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		for _, table := range tables() {
			iptablestest.Restore(t, v, plan.IPv4, table, ":KUBE-SERVICES - [0:0]", ":KUBE-SVC-X - [0:0]",
				":DOCKER - [0:0]", "-A INPUT -j DOCKER")
		}
		if err := cleanup(t.Context(), v, testEnv(t)); err != nil {
			t.Fatal(err)
		}
		if text := iptablestest.Ruleset(t, v, plan.IPv4); strings.Contains(text, "KUBE-") ||
			!strings.Contains(text, "-A INPUT -j DOCKER") {
			t.Errorf("left:\n%s", text)
		}
	})
}

func TestOwnJump(t *testing.T) {
	for text, want := range map[string]bool{
		`-m comment --comment "edgeway: Services" -j KUBE-SERVICES`:          true,
		`-m comment --comment edgeway -j KUBE-SERVICES`:                      true,
		`-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`: false,
		`-m comment --comment portals -m mark --mark 0x1 -j KUBE-SERVICES`:   false,
		`-j KUBE-SERVICES`: false,
		`-m comment --comment "made by hand for edgeway" -j ACCEPT`:                  false,
		`-m comment --comment "-j KUBE-SERVICES of edgeway" -j DOCKER`:               false,
		`-m comment --comment "edgeway" -m conntrack --ctstate NEW -j KUBE-SERVICES`: true,
	} {
		if got := isOwnJump(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
