package firewall

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// filter is a filter table with a built-in chain FORWARD.
func filter(policy string, rules ...string) string {
	text := "*filter\n:FORWARD " + policy + " [0:0]\n:OTHER - [0:0]\n"
	for _, r := range rules {
		if !strings.HasPrefix(r, "-A ") {
			r = "-A FORWARD " + r
		}
		text += r + "\n"
	}
	return text + "COMMIT\n"
}

// As TestForwardedConnections, in the words of iptables.
func TestForwardedByIPTables(t *testing.T) {
	const answered = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	for name, c := range map[string]struct {
		policy string
		rules  []string
		want   fault.Severity
	}{
		"policy DROP":                      {"DROP", nil, fault.Problem},
		"answers alone":                    {"DROP", []string{answered}, fault.Problem},
		"the state DNAT":                   {"DROP", []string{"-m conntrack --ctstate DNAT -j ACCEPT"}, fault.OK},
		"DNAT among states":                {"DROP", []string{"-m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT"}, fault.OK},
		"the status DNAT":                  {"DROP", []string{"-m conntrack --ctstatus DNAT -j ACCEPT"}, fault.OK},
		"not translated ones are dropped":  {"ACCEPT", []string{"-m conntrack ! --ctstate DNAT -j DROP"}, fault.OK},
		"the original port":                {"DROP", []string{answered, "-p tcp -m conntrack --ctorigdstport 30080 --ctdir ORIGINAL -j ACCEPT"}, fault.OK},
		"the original address":             {"DROP", []string{answered, "-m conntrack --ctorigdst 192.0.2.99 -j ACCEPT"}, fault.Problem},
		"interfaces":                       {"DROP", []string{answered, "-i eth0 -o eth+ -j ACCEPT"}, fault.OK},
		"not by an interface":              {"ACCEPT", []string{"! -i wg0 -j DROP"}, fault.Problem},
		"the endpoint's port":              {"ACCEPT", []string{"-d 10.244.0.0/16 -p tcp -m tcp --dport 8000:9000 -j REJECT --reject-with tcp-reset"}, fault.Problem},
		"several ports":                    {"DROP", []string{answered, "-p tcp -m multiport --dports 22,443,8000:8100 -j ACCEPT"}, fault.OK},
		"another protocol":                 {"ACCEPT", []string{"-p udp -j DROP", "-p gre -j DROP", "-p 47 -j DROP"}, fault.OK},
		"a port of clients":                {"ACCEPT", []string{"-p tcp -m tcp --sport 1:1023 -j DROP"}, fault.OK},
		"an ephemeral port":                {"ACCEPT", []string{"-p tcp -m tcp --sport 40000:50000 -j DROP"}, fault.Warning},
		"some clients":                     {"DROP", []string{answered, "-s 192.168.0.0/16 -j ACCEPT"}, fault.Warning},
		"a list of clients is dropped":     {"ACCEPT", []string{"-m set --match-set blocked src -j DROP", "-s 203.0.113.0/24 -j DROP"}, fault.OK},
		"a set of destinations":            {"ACCEPT", []string{"-m set --match-set nets dst -j DROP"}, fault.Warning},
		"the mark for masquerade":          {"DROP", []string{answered, "-m mark --mark 0x4000/0x4000 -j ACCEPT"}, fault.OK},
		"another mark":                     {"ACCEPT", []string{"-m mark --mark 0x1/0xff -j DROP"}, fault.OK},
		"another mark, which a rule sets":  {"ACCEPT", []string{"-j MARK --set-xmark 0x1/0xff", "-m mark --mark 0x1/0xff -j DROP"}, fault.Warning},
		"connections that begin oddly":     {"ACCEPT", []string{"-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctstate NEW -j DROP"}, fault.OK},
		"a mark of the connection":         {"ACCEPT", []string{"-m connmark --mark 0x1/0xff -j DROP"}, fault.Warning},
		"beyond a rate":                    {"ACCEPT", []string{"-p tcp -m hashlimit --hashlimit-above 100/sec --hashlimit-mode srcip --hashlimit-name x -j DROP"}, fault.OK},
		"up to a rate":                     {"DROP", []string{answered, "-m limit --limit 25/sec -j ACCEPT"}, fault.Warning},
		"destinations of this host":        {"DROP", []string{answered, "-m addrtype ! --dst-type LOCAL -j ACCEPT"}, fault.OK},
		"a match that is not known":        {"ACCEPT", []string{"-m u32 --u32 6&0xFF=0x6 -j DROP"}, fault.Warning},
		"a comment that looks like a rule": {"ACCEPT", []string{`-p udp -m comment --comment "see -j DROP" -j DROP`}, fault.OK},
		"a comment with quotes":            {"ACCEPT", []string{`-m comment --comment "a \"word\" ! -p" -i wg0 -j DROP`}, fault.OK},
		"a chain that returns":             {"ACCEPT", []string{"-j OTHER", "-A OTHER -o eth+ -j RETURN", "-A OTHER -j DROP"}, fault.OK},
		"a chain that drops":               {"ACCEPT", []string{"-g OTHER", "-A OTHER -o wg0 -j RETURN", "-A OTHER -j DROP"}, fault.Problem},
		"a target of another kind":         {"ACCEPT", []string{"-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", "-j LOG --log-prefix \"DROP \""}, fault.OK},
		"a program decides":                {"ACCEPT", []string{"-j NFQUEUE --queue-num 0"}, fault.Warning},
		"headers that nobody sends":        {"ACCEPT", []string{"-m rt --rt-type 0 -j DROP", "-p ah -m ah --ahspi 1:5 -j DROP"}, fault.OK}, // of ufw
		"forged sources":                   {"ACCEPT", []string{"-m rpfilter --validmark --invert -j DROP"}, fault.OK},
		"all but forged sources return":    {"ACCEPT", []string{"-j OTHER", "-A OTHER -m rpfilter --loose -j RETURN", "-A OTHER -j DROP"}, fault.OK},
		"broadcasts":                       {"ACCEPT", []string{"-m pkttype --pkt-type broadcast -j DROP", "-m addrtype --src-type BROADCAST,MULTICAST -j DROP"}, fault.OK},
		"sources of a type":                {"ACCEPT", []string{"-m addrtype --src-type UNICAST -j DROP"}, fault.Warning},
		"addresses from one to another":    {"ACCEPT", []string{"-m iprange --dst-range 10.244.1.1-10.244.1.20 -j DROP"}, fault.Problem},
		"addresses of others":              {"ACCEPT", []string{"-m iprange --dst-range 10.244.1.12-10.244.1.20 -j DROP"}, fault.OK},
	} {
		if got := asked(testPlan(plan.NodePort), readSave(filter(c.policy, c.rules...))); fault.Worst(got) != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, fault.Worst(got), c.want, got)
		}
	}
}

// What counts packets makes no other table, and what drops them does.
func TestWhatIsAnotherTable(t *testing.T) {
	sum := func(policy, rule string) string {
		s := saving{table: newTable("ip", "filter"), text: sha256.New()}
		s.line(xtables.Line{Chain: "FORWARD", Policy: policy})
		s.line(xtables.Line{Chain: "FORWARD", IsRule: true, Rule: rule})
		return string(s.text.Sum(nil))
	}
	first := sum("ACCEPT [0:0]", "-j ACCEPT")
	if sum("ACCEPT [7:1234]", "-j ACCEPT") != first {
		t.Error("a counter makes another table")
	}
	if sum("DROP [0:0]", "-j ACCEPT") == first || sum("ACCEPT [0:0]", "-j DROP") == first {
		t.Error("another rule makes no other table")
	}
}

// FuzzRule gives the parser any rule. One whose target is ACCEPT drops nothing.
func FuzzRule(f *testing.F) {
	for line := range strings.Lines(testdata(f, "docker.save") + testdata(f, "ufw.save")) {
		if _, rule, ok := strings.Cut(strings.TrimPrefix(line, "-A "), " "); ok {
			f.Add(strings.TrimSpace(rule))
		}
	}
	f.Add(`! -p tcp -m comment --comment "\"" --tcp-flags ! --mark /`)
	ways := newSurvey(everything(), testHost{}).ways
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\n\r") {
			return
		}
		r, _ := parseRule(text)
		if r.text != text {
			t.Errorf("the text is %q", r.text)
		}
		got := judge(readSave(filter("ACCEPT", text)), ways, 14)
		words := splitWords(text)
		if fault.Worst(got) != fault.OK && !containsAny(words, "DROP", "REJECT", "QUEUE", "NFQUEUE", "TARPIT", "CHAOS", "DELUDE", "STEAL") {
			t.Errorf("%q: %+v", text, got)
		}
	})
}

func containsAny(words []string, others ...string) bool {
	for _, w := range words {
		if slices.Contains(others, w) {
			return true
		}
	}
	return false
}
