package firewall

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// seen is what a finding must say.
type seen struct {
	level     fault.Severity
	says, fix string
}

func compare(t *testing.T, what string, got []fault.Fault, want ...seen) {
	t.Helper()
	if len(want) == 0 {
		want = []seen{{fault.OK, "no rule of other programs drops", ""}}
	}
	slices.SortStableFunc(got, func(a, b fault.Fault) int { return strings.Compare(a.Message, b.Message) })
	slices.SortStableFunc(want, func(a, b seen) int { return strings.Compare(a.says, b.says) })
	if len(got) != len(want) {
		t.Errorf("%s: %d findings, want %d: %+v", what, len(got), len(want), got)
		return
	}
	for i, w := range want {
		if got[i].ID != Check || got[i].Severity != w.level || !strings.HasPrefix(got[i].Message, w.says) || got[i].Fix != w.fix {
			t.Errorf("%s:\n got %+v\nwant %+v", what, got[i], w)
		}
	}
}

// Docker sets the policy DROP. Its chain for users comes first.
func TestDocker(t *testing.T) {
	text := testdata(t, "docker.save")
	const fix = "iptables -I DOCKER-USER -m conntrack --ctstate DNAT -j ACCEPT"
	compare(t, "as installed", asked(everything(), readSave(text)),
		seen{fault.Problem, "Docker's policy drop of chain FORWARD (table filter of iptables) drops connections from pods by eth0 to default/web:http/TCP (10.96.0.10:80, endpoint 10.244.1.11:8080)", fix})
	mended := strings.Replace(text, "-A FORWARD -j DOCKER-USER\n", "-A DOCKER-USER -m conntrack --ctstate DNAT -j ACCEPT\n-A FORWARD -j DOCKER-USER\n", 1)
	compare(t, "mended", asked(everything(), readSave(mended)))
	compare(t, "endpoints in containers", judge(readSave(text), newSurvey(testPlan(plan.NodePort), behind{"docker0"}).ways, 14),
		seen{fault.Problem, `Docker's rule '! -i docker0 -o docker0 -j DROP' in chain DOCKER (table filter of iptables) drops connections from outside by eth0`, fix})
	compare(t, "with ClusterIPs for this host alone", asked(testPlan(plan.ClusterIP), readSave(text)),
		seen{fault.Warning, "Docker's policy drop of chain FORWARD (table filter of iptables) drops connections from outside by eth0 to default/web:http/TCP (10.96.0.10:80,", fix})
}

func TestUFW(t *testing.T) {
	text := testdata(t, "ufw.save")
	routed := seen{
		fault.Problem, "ufw's policy drop of chain FORWARD (table filter of iptables) drops connections from outside by eth0 to default/web:http/TCP (192.0.2.10:30080,",
		"ufw route allow in on eth0 out on eth1",
	}
	p := testPlan(plan.NodePort)
	compare(t, "as installed", asked(p, readSave(text)), routed)
	compare(t, "where clients come by a link that is not known", judge(readSave(text), newSurvey(p, adrift{}).ways, 14), seen{
		fault.Problem, "ufw's policy drop of chain FORWARD (table filter of iptables) drops connections from outside to default/web", "ufw route allow out on eth1",
	})
	p.HealthChecks = []*plan.HealthCheck{{Namespace: "default", Name: "lb", Port: 30999}}
	checked := seen{
		fault.Problem, "ufw's policy drop of chain INPUT (table filter of iptables) drops connections from outside by eth0 to the health check of default/lb (192.0.2.10:30999)",
		"ufw allow in on eth0 to 192.0.2.10 port 30999 proto tcp",
	}
	compare(t, "with a health check", asked(p, readSave(text)), routed, checked)
	mended := strings.Replace(text, "COMMIT", "-A ufw-user-forward -i eth0 -o eth1 -j ACCEPT\n-A ufw-user-input -d 192.0.2.10/32 -i eth0 -p tcp -m tcp --dport 30999 -j ACCEPT\nCOMMIT", 1)
	compare(t, "mended", asked(p, readSave(mended)))
	compare(t, "this host's own connections", asked(testPlan(plan.ClusterIP), readSave(text)), seen{
		fault.Warning, "ufw's policy drop of chain FORWARD", "ufw route allow in on eth0 out on eth1",
	})
}

func TestFirewalld(t *testing.T) {
	text := testdata(t, "firewalld.json")
	p := testPlan(plan.ClusterIP, plan.NodePort)
	compare(t, "as installed", asked(p, mustParse(t, text)))
	p.HealthChecks = []*plan.HealthCheck{{Namespace: "default", Name: "lb", Port: 30999}}
	compare(t, "with a health check", asked(p, mustParse(t, text)), seen{
		fault.Problem, `firewalld's rule 'handle 55' in chain filter_IN_public (inet table firewalld) drops connections from outside by eth0 to the health check of default/lb (192.0.2.10:30999)`,
		"firewall-cmd --permanent --add-port=30999/tcp && firewall-cmd --reload",
	})
	strict := mustParse(t, text) // as of firewalld 2.3.1
	forward := strict[0].chains["filter_FORWARD"]
	accepts := slices.IndexFunc(forward.rules, func(r rule) bool { return r.handle == 35 }) // ct status dnat accept
	forward.rules[accepts].do, forward.rules[accepts].to = jump, "filter_FORWARD_dnat"
	rejects := strict[0].chain("filter_FORWARD_dnat")
	rejects.rules = []rule{{do: drop, handle: 134}}
	compare(t, "with StrictForwardPorts", asked(testPlan(plan.NodePort), strict), seen{
		fault.Problem, `firewalld's rule 'handle 134' in chain filter_FORWARD_dnat (inet table firewalld) drops connections from outside by eth0 to default/web:http/TCP`, firewalldMend,
	})
}

// Whoever may change the host's network may name tables and interfaces: a shell and nft would take these words for
// commands.
func TestNamesThatAreNoWords(t *testing.T) {
	text := chainJSON("forward", 0, "drop")
	for _, name := range []string{"a;reboot", "$(reboot)", "-f", "a b", "`reboot`", "é"} {
		raw, _ := json.Marshal(name)
		for was, want := range map[string]string{`"foo"`: "nft list ruleset", `"c"`: "nft list table inet foo"} {
			got := asked(testPlan(plan.NodePort), mustParse(t, strings.ReplaceAll(text, was, string(raw))))
			if len(got) != 1 || got[0].Fix != want {
				t.Errorf("%q instead of %s: %+v", name, was, got)
			}
		}
		got := judge(readSave(testdata(t, "ufw.save")), newSurvey(testPlan(plan.NodePort), behind{name}).ways, 14)
		if len(got) != 1 || got[0].Fix != "iptables-save -t filter" {
			t.Errorf("an interface named %q: %+v", name, got)
		}
	}
}

// libvirt's rules are about its own bridges.
func TestLibvirt(t *testing.T) {
	tables := func() []*table { return mustParse(t, testdata(t, "libvirt.json")) }
	p := testPlan(plan.NodePort)
	compare(t, "endpoints elsewhere", asked(p, tables()))
	got := judge(tables(), newSurvey(p, behind{"virbr0"}).ways, 14)
	compare(t, "endpoints in virtual machines", got, seen{
		fault.Problem, `libvirt's rule 'handle 12' in chain guest_input (ip table libvirt_network) drops connections from outside by eth0`,
		"nft insert rule ip libvirt_network forward ct status dnat accept",
	}, seen{
		fault.Problem, `libvirt's rule 'handle 10' in chain guest_output (ip table libvirt_network) drops the answers to connections from outside by eth0`,
		"nft insert rule ip libvirt_network forward ct status dnat accept",
	})
}

// behind is a host with all endpoints at one link.
type behind struct{ link string }

func (behind) LinkOf(a netip.Addr) string { return testHost{}.LinkOf(a) }

func (b behind) Route(to netip.Addr) (string, netip.Addr) {
	link, source := testHost{}.Route(to)
	if link == "eth1" {
		link = b.link
	}
	return link, source
}

// adrift is a host without a default route, whose links are not known.
type adrift struct{ testHost }

func (adrift) LinkOf(netip.Addr) string { return "" }

func (a adrift) Route(to netip.Addr) (link string, source netip.Addr) {
	if link, source = a.testHost.Route(to); link == "eth0" {
		link = ""
	}
	return link, source
}

// A trace knows the place, and not the chains around it.
func TestDrop(t *testing.T) {
	endpoint := netip.MustParseAddrPort("10.244.1.11:8080")
	iptables := command("ip", xtables.NFT)
	for _, c := range []struct {
		drop      Drop
		says, fix string
	}{
		{
			Drop{Family: "inet", Table: "foo", Chain: "out", Handle: 7, Rule: "tcp dport 8080 drop", Protocol: plan.TCP},
			`the rule 'tcp dport 8080 drop' in chain out (inet table foo)`, "nft insert rule inet foo out handle 7 ct status dnat accept",
		},
		{
			Drop{Family: "inet", Table: "foo", Chain: "out", Protocol: plan.TCP, To: endpoint, Direct: true},
			"the policy drop of chain out (inet table foo)", "nft add rule inet foo out ip daddr 10.244.1.11 tcp dport 8080 accept",
		},
		{
			Drop{Family: "ip", Table: "filter", Chain: "ufw-user-output", Handle: 3, Rule: "drop", Protocol: plan.TCP},
			`ufw's rule 'drop' in chain ufw-user-output (table filter of ` + iptables + `)`, iptables + " -t filter -I ufw-user-output -m conntrack --ctstate DNAT -j ACCEPT",
		},
		{
			Drop{Family: "inet", Table: "foo", Chain: "out;reboot", Protocol: plan.TCP},
			"the policy drop of chain out;reboot (inet table foo)", "nft list table inet foo",
		},
		{
			Drop{Family: "ip", Table: "edgeway", Chain: "c-1", Handle: 3, Rule: "drop", Protocol: plan.TCP, To: netip.MustParseAddrPort("10.96.0.10:80")},
			`the rule 'drop' in chain c-1 (ip table edgeway)`, "edgeway explain host 10.96.0.10:80/tcp  # the rule is Edgeway's own",
		},
	} {
		if c.drop.String() != c.says || c.drop.Fix() != c.fix {
			t.Errorf("got  %s\n     %s\nwant %s\n     %s", c.drop, c.drop.Fix(), c.says, c.fix)
		}
	}
}
