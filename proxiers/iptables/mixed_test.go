package iptables

import (
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

func TestMixedHostNamesTheWriters(t *testing.T) {
	newHost(t)
	restore(t, legacy, plan.IPv4, tableNAT, ":DOCKER - [0:0]", "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER", "-A DOCKER -j RETURN")
	restore(t, legacy, plan.IPv6, tableFilter, "-A INPUT -p tcp -j ACCEPT", "-A INPUT -p udp -j ACCEPT")
	if text, mixed := mixedHost(t.Context(), nft); mixed {
		t.Errorf("only legacy: %s", text)
	}
	writeOwn(t, nft, plan.IPv4)
	restore(t, nft, plan.IPv4, tableFilter, ":f2b-sshd - [0:0]", "-A INPUT -j f2b-sshd", "-A f2b-sshd -j RETURN")
	restore(t, nft, plan.IPv4, "mangle", ":KUBE-KUBELET-CANARY - [0:0]", "-A KUBE-KUBELET-CANARY -j RETURN", ":mine - [0:0]", "-A mine -j RETURN")
	text, mixed := mixedHost(t.Context(), nft)
	want := "rules are present in both iptables-nft (edgeway, fail2ban, kubelet, 1 rule in mine) and iptables-legacy (Docker, 2 rules in INPUT):"
	if !mixed || !strings.HasPrefix(text, want) {
		t.Errorf("got %q, want %q", text, want)
	}
}

// While the backend is switched, both variants have rules of ours.
func TestSwitchMakesNoMixedHost(t *testing.T) {
	newHost(t)
	for _, v := range variants {
		writeOwn(t, v, plan.IPv4)
	}
	for _, inForce := range variants {
		if text, mixed := mixedHost(t.Context(), inForce); mixed {
			t.Errorf("in force is %s: %s", inForce, text)
		}
	}
}

func TestKubeProxyIsNotTakenForUs(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		for table, lines := range ownRules {
			restore(t, v, plan.IPv4, table, strings.ReplaceAll(strings.Join(lines, "\n"), "edgeway:", "kubernetes"))
		}
		c, err := takeCensus(t.Context(), v)
		if err != nil || c.String() != "kube-proxy" {
			t.Errorf("got %q, %v", c, err)
		}
	})
}

// Tables that are no tables of iptables are not counted, nor are chains of ours that nothing leads to.
func TestCensusLeavesOutNativeTables(t *testing.T) {
	newHost(t)
	run(t, "add table ip edgeway; add chain ip edgeway a; add rule ip edgeway a accept; add table inet filter; add chain inet filter a; add rule inet filter a accept", "nft", "-f", "-")
	c, err := takeCensus(t.Context(), nft)
	if err != nil || !c.empty() {
		t.Errorf("got %q, %v", c, err)
	}
}
