package firewall

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

var asInstalled = strings.NewReplacer()

// restorePrograms lists the programs that load iptables rules from a file.
var restorePrograms = []string{"iptables-nft-restore", "iptables-legacy-restore"}

// Docker sets the FORWARD chain's policy to DROP, and FORWARD jumps to the DOCKER-USER chain first.
func TestDocker(t *testing.T) {
	for _, restore := range restorePrograms {
		h := newRulesHost(t)
		h.load("docker.save", asInstalled, restore)
		if fix := h.wantFinding(
			fault.Problem, "Docker's policy drop of chain FORWARD",
		); !strings.Contains(fix, dockerUser) {
			t.Errorf("the fix is %q", fix)
		}
		h.question.Links = func() []string { return []string{"docker0", "eth1"} } // Docker accepts published ports
		h.wantFinding(fault.Notice, "may drop forwarded connections")
		h.question.Links = func() []string { return []string{"eth1"} }
		h.obey()
		h.well()
	}
}

// The test itself adds the rule that the ufw command would add, because ufw may not be installed.
func TestUFW(t *testing.T) {
	for _, restore := range restorePrograms {
		h := newRulesHost(t)
		h.load("ufw.save", asInstalled, restore)
		if fix := h.wantFinding(
			fault.Problem, "ufw's policy drop of chain FORWARD",
		); fix != "ufw route allow out on eth1" {
			t.Errorf("the fix is %q", fix)
		}
		for _, rule := range []string{"-o eth1", "-d 10.244.0.0/16"} {
			h.load("ufw.save", strings.NewReplacer("COMMIT", "-A ufw-user-forward "+rule+" -j ACCEPT\nCOMMIT"), restore)
			h.well()
		}
		h.load("ufw.save", strings.NewReplacer("COMMIT", "-A ufw-user-forward -s 192.168.0.0/16 -j ACCEPT\nCOMMIT"),
			restore)
		h.wantFinding(fault.Notice, "ufw's policy drop of chain FORWARD")
		h.question.Links = func() []string { return []string{"$(reboot)"} }
		h.load("ufw.save", asInstalled, restore)
		if fix := h.wantFinding(fault.Problem, "ufw"); strings.Contains(fix, "reboot") {
			t.Errorf("the fix is %q", fix)
		}
	}
}

// firewalld accepts translated connections unless an operator has enabled StrictForwardPorts.
func TestFirewalld(t *testing.T) {
	h := newRulesHost(t)
	h.load("firewalld.nft", asInstalled, "nft", "-f", "-")
	h.well()
	h.sh("nft delete table inet firewalld")
	strict := strings.NewReplacer("\tchain filter_INPUT_ZONES {",
		"\tchain filter_FORWARD_dnat {\n\t\treject with icmpx type admin-prohibited\n\t}\n\tchain filter_INPUT_ZONES {",
		"ct status dnat accept", "ct status dnat jump filter_FORWARD_dnat")
	h.load("firewalld.nft", strict, "nft", "-f", "-")
	if fix := h.wantFinding(fault.Problem, "firewalld's rule"); fix != firewalldFix {
		t.Errorf("the fix is %q", fix)
	}
}

// libvirt's rules affect only its own bridges, so they cause no finding.
func TestLibvirt(t *testing.T) {
	h := newRulesHost(t)
	h.load("libvirt.nft", asInstalled, "nft", "-f", "-")
	h.well()
}

// A fix must not contain table or interface names that a shell or nft could interpret as commands. Any program that
// configures the network can create tables and interfaces with such names.
func TestFixOmitsUnsafeNames(t *testing.T) {
	for _, name := range []string{"a;reboot", "$(reboot)", "-f", "a b", "`reboot`", "é"} {
		for _, names := range [][2]string{{name, "c"}, {"foo", name}} {
			tab := newTable("inet", names[0])
			c := tab.chain(names[1])
			h := blocker{at: ruleRef{base: c, chain: c}, need: &need{}}
			if fix := h.fix(); !strings.HasPrefix(fix, "nft list ") || strings.Contains(fix, name) {
				t.Errorf("%q: %q", names, fix)
			}
		}
	}
}

// A trace reports the chain and the rule that dropped a packet, but not the chains that jumped to that chain.
func TestDropTextAndFix(t *testing.T) {
	endpoint := netip.MustParseAddrPort("10.244.1.11:8080")
	iptables := command("ip", xtables.NFT)
	for _, c := range []struct {
		drop       Drop
		names, fix string
	}{
		{
			Drop{
				Family: "inet", Table: "foo", Chain: "out", Handle: 7, Rule: "tcp dport 8080 drop",
				Protocol: plan.TCP,
			},
			`'tcp dport 8080 drop' in chain out (inet table foo)`,
			"nft insert rule inet foo out handle 7 ct status dnat accept",
		},
		{
			Drop{Family: "inet", Table: "foo", Chain: "out", Protocol: plan.TCP, Destination: endpoint, Direct: true},
			"policy drop of chain out (inet table foo)",
			"nft add rule inet foo out ip daddr 10.244.1.11 tcp dport 8080 accept",
		},
		{
			Drop{Family: "ip", Table: "filter", Chain: "ufw-user-output", Handle: 3, Rule: "drop", Protocol: plan.TCP},
			`ufw's rule 'drop' in chain ufw-user-output (table filter of ` + iptables + `)`,
			iptables + " -t filter -I ufw-user-output -m conntrack --ctstate DNAT -j ACCEPT",
		},
		{
			Drop{Family: "inet", Table: "foo", Chain: "out;reboot", Protocol: plan.TCP},
			"chain out;reboot (inet table foo)", "nft list table inet foo",
		},
		{
			Drop{
				Family: "ip", Table: "edgeway", Chain: "c-1", Handle: 3, Rule: "drop", Protocol: plan.TCP,
				Destination: netip.MustParseAddrPort("10.96.0.10:80"),
			},
			`chain c-1 (ip table edgeway)`, "edgeway explain host 10.96.0.10:80/tcp  # the rule is Edgeway's own",
		},
	} {
		if !strings.Contains(c.drop.String(), c.names) || c.drop.Fix() != c.fix {
			t.Errorf("got  %s\n     %s\nwant %s\n     %s", c.drop, c.drop.Fix(), c.names, c.fix)
		}
	}
}

// FuzzRules passes arbitrary text to the parsers. The parsers must not find a drop in text that contains neither
// "drop" nor "reject".
func FuzzRules(f *testing.F) {
	for _, name := range []string{"docker.save", "ufw.save", "firewalld.nft", "libvirt.nft"} {
		raw, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw))
	}
	f.Add("\tchain c {\n\t\t\n\t\ttype filter hook forward priority 0; policy drop;\n\t\tct state vmap { new : accept, : , }\n\t\tlog prefix \"a\n")
	needs := needsOf(Requirements{
		Plan:               testPlan(remoteEndpoint, localEndpoint),
		ForwardedFrontends: func(plan.Family) (string, string) { return "x", "" },
	})
	f.Fuzz(func(t *testing.T, text string) {
		saved, listed := newTable("ip", "filter"), newTable("ip", "filter")
		saved.readSave(text)
		listed.readNFT(text)
		for _, base := range append(saved.bases, listed.bases...) {
			for i := range needs {
				lower := strings.ToLower(text)
				if fate := followChain(base, &needs[i], nil); fate.verdict == drop &&
					!strings.Contains(lower, "drop") && !strings.Contains(lower, "reject") {
					t.Errorf("%q: %+v", text, fate)
				}
			}
		}
	})
}
