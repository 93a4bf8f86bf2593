package iptables

import (
	"maps"
	"slices"
	"testing"

	"edgeway/proxiers/plan"
)

// usedHost has what several programs write into nat.
var usedHost = []string{
	":DOCKER - [0:0]", ":KUBE-SERVICES - [0:0]", ":KUBE-SVC-A - [0:0]", ":KUBE-FIREWALL - [0:0]",
	`-A PREROUTING -m comment --comment "edgeway: Services" -j KUBE-SERVICES`,
	"-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
	`-A OUTPUT -m comment --comment "made by hand for edgeway" -j ACCEPT`,
	"-A OUTPUT -j KUBE-SERVICES",
	"-A DOCKER -p tcp -m tcp --dport 8080 -j DNAT --to-destination 192.0.2.1:80",
	"-A KUBE-SERVICES -d 203.0.113.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A",
	"-A KUBE-SVC-A -p tcp -j DNAT --to-destination 192.0.2.2:80",
	"-A KUBE-FIREWALL -j DROP",
}

func TestSave(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		restore(t, v, plan.IPv4, tableNAT, usedHost[:len(usedHost)-1]...)
		s, err := testTools(t, v, plan.IPv4).save(t.Context(), tableNAT)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{`-m comment --comment "edgeway: Services" -j KUBE-SERVICES`, "-m addrtype --dst-type LOCAL -j DOCKER"}; !slices.Equal(s.builtin["PREROUTING"], want) {
			t.Errorf("PREROUTING: got %q, want %q", s.builtin["PREROUTING"], want)
		}
		if got := s.policies["PREROUTING"]; got != "ACCEPT" {
			t.Errorf("policy of PREROUTING: got %q", got)
		}
		slices.Sort(s.chains)
		if want := []string{"DOCKER", "KUBE-FIREWALL", "KUBE-SERVICES", "KUBE-SVC-A"}; !slices.Equal(s.chains, want) {
			t.Errorf("chains: got %q, want %q", s.chains, want)
		}
		if s.rules != 2 || s.ownJumps != 1 || s.foreignJumps != 1 {
			t.Errorf("got %d rules, %d jumps of ours and %d of others, want 2, 1 and 1", s.rules, s.ownJumps, s.foreignJumps)
		}
		if want := map[string]int{"DOCKER": 2, "OUTPUT": 1, "KUBE-SERVICES": 1}; !maps.Equal(s.foreign, want) {
			t.Errorf("rules of others: got %v, want %v", s.foreign, want)
		}
	})
}

func TestLookingMakesNothing(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		before := nftRuleset(t) + registeredTables(t)
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			tools := testTools(t, v, f)
			for _, table := range tables {
				s, err := tools.save(t.Context(), table)
				if err != nil {
					t.Fatal(err)
				}
				if len(s.chains)+len(s.builtin)+len(s.foreign)+s.rules != 0 {
					t.Errorf("%s %s is not empty: %+v", f, table, s)
				}
			}
			if n, err := tools.chainPackets(t.Context(), tableFilter, chainLoopbackUDP); n != 0 || err != nil {
				t.Errorf("packets of no chain: %d, %v", n, err)
			}
		}
		if _, mixed := mixedHost(t.Context(), nft); mixed {
			t.Error("a host without rules is mixed")
		}
		if err := cleanupVariant(t.Context(), v, testLogger(t)); err != nil {
			t.Error(err)
		}
		if after := nftRuleset(t) + registeredTables(t); after != before {
			t.Errorf("before %q, after %q", before, after)
		}
	})
}

func TestTarget(t *testing.T) {
	for text, want := range map[string]string{
		"-j ACCEPT":                                    "",
		"-p tcp -m tcp --dport 80 -j KUBE-SVC-A":       "KUBE-SVC-A",
		"-g KUBE-SERVICES":                             "KUBE-SERVICES",
		"-p tcp -j DNAT --to-destination 192.0.2.1:80": "DNAT",
		`-m comment --comment "see -j KUBE-SERVICES edgeway" -j DOCKER`: "DOCKER",
		"-m mark --mark 0x1": "",
	} {
		if got := target(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
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
		if got := ownJump(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
