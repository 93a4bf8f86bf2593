package iptables

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// ownRules are a small set of ours in each table.
var ownRules = map[string][]string{
	tableNAT: {
		":KUBE-SERVICES - [0:0]", ":KUBE-SERVICES-1 - [0:0]", ":KUBE-SVC-A - [0:0]", ":KUBE-POSTROUTING - [0:0]",
		`-I PREROUTING -m comment --comment "edgeway: Services" -j KUBE-SERVICES`,
		`-I OUTPUT -m comment --comment "edgeway: Services" -j KUBE-SERVICES`,
		`-I POSTROUTING -m comment --comment "edgeway: masquerade" -j KUBE-POSTROUTING`,
		"-A KUBE-SERVICES -d 0.0.0.1/0.0.0.15 -j KUBE-SERVICES-1",
		"-A KUBE-SERVICES-1 -j KUBE-SVC-A",
		"-A KUBE-SVC-A -p tcp -j DNAT --to-destination 192.0.2.2:80",
		"-A KUBE-POSTROUTING -j MASQUERADE --random-fully",
	},
	tableFilter: {
		":KUBE-FORWARD - [0:0]",
		`-I FORWARD -m comment --comment "edgeway: forwarding" -j KUBE-FORWARD`,
		"-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
	},
}

func writeOwn(t *testing.T, v variant, f plan.Family) {
	t.Helper()
	for table, lines := range ownRules {
		text := strings.Join(lines, "\n")
		if f == plan.IPv6 {
			text = strings.NewReplacer("0.0.0.1/0.0.0.15", "::1/::f", "192.0.2.2:80", "[2001:db8::2]:80").Replace(text)
		}
		restore(t, v, f, table, text)
	}
}

func cleanupBackend(t *testing.T, name string) {
	t.Helper()
	if err := testBackend(t, name).Cleanup(t.Context(), proxiers.Options{Logger: testLogger(t)}); err != nil {
		t.Fatalf("cleanup: %v", err)
	}
}

func TestCleanupLeavesTheHostAsBefore(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		before := nftRuleset(t)
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			writeOwn(t, v, f)
		}
		cleanupBackend(t, v.backend())
		if after := nftRuleset(t); after != before {
			t.Errorf("nftables: before %q, after %q", before, after)
		}
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			if after := ruleset(t, v, f); strings.Contains(after, "KUBE-") {
				t.Errorf("left:\n%s", after)
			}
		}
	})
}

func TestCleanupLeavesOthersAlone(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		restore(t, v, plan.IPv4, tableNAT, ":DOCKER - [0:0]", ":KUBE-FIREWALL - [0:0]", "-A PREROUTING -j DOCKER",
			`-A OUTPUT -m comment --comment "made by hand for edgeway" -j ACCEPT`, "-A DOCKER -j RETURN", "-A KUBE-FIREWALL -j RETURN")
		restore(t, v, plan.IPv4, tableFilter, ":FORWARD DROP [0:0]")
		before := ruleset(t, v, plan.IPv4)
		other := nft
		if v == nft {
			other = legacy
		}
		writeOwn(t, other, plan.IPv4)
		kept := ruleset(t, other, plan.IPv4)
		writeOwn(t, v, plan.IPv4)
		cleanupBackend(t, v.backend())
		if after := ruleset(t, v, plan.IPv4); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if after := ruleset(t, other, plan.IPv4); after != kept {
			t.Errorf("iptables-%s before:\n%s\nafter:\n%s", other, kept, after)
		}
	})
}

// The same chains, but the rules that lead to them are not ours.
func TestCleanupLeavesKubeProxyAlone(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		for table, lines := range ownRules {
			restore(t, v, plan.IPv4, table, strings.ReplaceAll(strings.Join(lines, "\n"), "edgeway:", "kubernetes"))
		}
		before := ruleset(t, v, plan.IPv4)
		cleanupBackend(t, v.backend())
		if after := ruleset(t, v, plan.IPv4); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		// A kube-proxy that came after us uses our chains.
		jump := `PREROUTING -m comment --comment "edgeway: Services" -j KUBE-SERVICES`
		restore(t, v, plan.IPv4, tableNAT, "-A "+jump)
		cleanupBackend(t, v.backend())
		if after := ruleset(t, v, plan.IPv4); after != before {
			t.Errorf("with a jump of ours, before:\n%s\nafter:\n%s", before, after)
		}
	})
}

func TestCleanupKeepsTablesThatAreUsed(t *testing.T) {
	for name, script := range map[string]string{
		"set":         "add set ip nat clients { type ipv4_addr; }",
		"own chain":   "add chain ip nat mine",
		"base chain":  "add chain ip nat mine { type nat hook prerouting priority 5; }",
		"rule":        "add rule ip nat OUTPUT accept",
		"policy drop": "add chain ip nat OUTPUT { policy drop; }",
	} {
		t.Run(name, func(t *testing.T) {
			newHost(t)
			writeOwn(t, nft, plan.IPv4)
			run(t, script, "nft", "-f", "-")
			cleanupBackend(t, nft.backend())
			if after := nftRuleset(t); !strings.Contains(after, "table ip nat") || strings.Contains(after, "table ip filter") || strings.Contains(after, "KUBE-") {
				t.Errorf("want nat without our chains and no filter, got:\n%s", after)
			}
		})
	}
}

func TestCleanupWithoutPrograms(t *testing.T) {
	newHost(t)
	onlyPrograms(t, nil)
	for _, v := range variants {
		cleanupBackend(t, v.backend())
	}
}

func TestCleanupWhileOthersChange(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		const rounds = 50
		restore(t, v, plan.IPv4, tableNAT, ":OTHER - [0:0]")
		writeOwn(t, v, plan.IPv4)
		wait := startOther(t, fmt.Sprintf("for i in $(seq %d); do iptables-%s --wait -t nat -A OTHER -j ACCEPT || exit 1; done", rounds, v))
		for range 5 {
			cleanupBackend(t, v.backend())
			writeOwn(t, v, plan.IPv4)
		}
		cleanupBackend(t, v.backend())
		wait()
		got := ruleset(t, v, plan.IPv4)
		if n := strings.Count(got, "-A OTHER -j ACCEPT"); n != rounds || strings.Contains(got, "KUBE-") {
			t.Errorf("%d rules of the other program, want %d and none of ours:\n%s", n, rounds, got)
		}
	})
}

// A rule that another program adds after we looked is not deleted with the table.
func TestTableIsNotDeletedAfterAChange(t *testing.T) {
	newHost(t)
	run(t, "add table ip nat", "nft", "-f", "-")
	c, err := nfnetlink.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	generation, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	run(t, "add chain ip nat mine", "nft", "-f", "-")
	if err := deleteTable(plan.IPv4, tableNAT, generation); !errors.Is(err, unix.ERESTART) {
		t.Errorf("want ERESTART, got %v", err)
	}
	if got := nftRuleset(t); !strings.Contains(got, "chain mine") {
		t.Errorf("the table is gone:\n%s", got)
	}
	if err := deleteTable(plan.IPv4, tableNAT, generation+1); err != nil || nftRuleset(t) != "" {
		t.Errorf("the table stays: %v", err)
	}
}

// After another program's "iptables -F" no rule says whose the chains are: empty, they are nobody's.
func TestCleanupOfEmptiedChains(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		for _, table := range tables {
			restore(t, v, plan.IPv4, table, ":KUBE-SERVICES - [0:0]", ":KUBE-SVC-X - [0:0]", ":DOCKER - [0:0]", "-A INPUT -j DOCKER")
		}
		if err := cleanupVariant(t.Context(), v, testLogger(t)); err != nil {
			t.Fatal(err)
		}
		if text := ruleset(t, v, plan.IPv4); strings.Contains(text, "KUBE-") || !strings.Contains(text, "-A INPUT -j DOCKER") {
			t.Errorf("left:\n%s", text)
		}
	})
}
