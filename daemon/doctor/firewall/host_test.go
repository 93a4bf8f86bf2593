package firewall

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// base returns a command that adds a base chain called c to the inet table foo.
func base(hook, policy string, rules ...string) string {
	return fmt.Sprintf("nft -f - <<'E'\ntable inet foo {\nchain other { }\nchain last { counter reject; }\nchain c {\ntype filter hook %s; policy %s;\n%s\n}\n}\nE",
		hook, policy, strings.Join(rules, "\n"))
}

const forward = "forward priority 0"

// Rules in a real kernel produce every possible outcome of the check, and each suggested fix resolves the reported
// problem.
func TestOutcomes(t *testing.T) {
	const established = "ct state established,related accept"
	for name, c := range map[string]struct {
		plant string
		want  fault.Severity
		names string
	}{
		"an empty chain":                        {base(forward, "accept"), fault.OK, ""},
		"nft drops by policy":                   {base(forward, "drop"), fault.Problem, "policy drop of chain c (inet table foo)"},
		"answers alone are accepted":            {base(forward, "drop", established), fault.Problem, "policy drop"},
		"answers alone, by a map":               {base(forward, "drop", "ct state vmap { established : accept, related : accept, invalid : drop }"), fault.Problem, "policy drop"},
		"answers, loopback and ICMP":            {base(forward, "drop", established, `iifname "lo" accept`, "icmp type echo-request accept", "meta l4proto { icmp, ipv6-icmp } accept"), fault.Problem, "policy drop"},
		"answers are not accepted":              {base(forward, "drop", "ct state new accept"), fault.Problem, "the answers to"},
		"both are accepted":                     {base(forward, "drop", established, "ct state new accept"), fault.OK, ""},
		"all states":                            {base(forward, "drop", "ct state { established, related, new } counter accept"), fault.OK, ""},
		"the rule of the fix":                   {base(forward, "drop", "ct status dnat accept"), fault.OK, ""},
		"the rule of the fix, too late":         {base(forward, "accept", "log prefix \"no \" level info drop", "ct status dnat accept"), fault.Problem, "in chain c (inet table foo)"},
		"a final reject":                        {base(forward, "accept", established, "reject with icmpx type admin-prohibited"), fault.Problem, "reject with icmpx"},
		"a final reject in another chain":       {base(forward, "accept", "jump other", "goto last"), fault.Problem, "in chain last (inet table foo)"},
		"other interfaces":                      {base(forward, "drop", established, `oifname "wg0" accept`), fault.Problem, "policy drop"},
		"some clients are accepted":             {base(forward, "drop", established, "ip saddr 192.168.0.0/16 accept"), fault.Notice, "may drop"},
		"the interface to endpoints":            {base(forward, "drop", established, `iifname "eth0" oifname "eth1" accept`), fault.Notice, "may drop"},
		"a port, new connections":               {base(forward, "drop", established, "tcp dport 8080 ct state new accept"), fault.Notice, "may drop"},
		"not by an interface":                   {base(forward, "drop", established, `oifname != "wg0" accept`), fault.Notice, "may drop"},
		"a set of destinations":                 {base(forward, "drop", established, "ip daddr { 10.244.1.11, 10.244.1.12 } accept"), fault.Notice, "may drop"},
		"a map of several properties":           {base(forward, "drop", established, `iifname . oifname vmap { "a" . "b" : accept, "c" . "d" : jump other }`), fault.Notice, "may drop"},
		"some clients are dropped":              {base(forward, "accept", "ip saddr 203.0.113.0/24 drop", `iifname "wg0" goto last`), fault.OK, ""},
		"a chain that may return":               {base(forward, "accept", "jump other") + "\nnft 'add rule inet foo other ip daddr 10.244.0.0/16 return; add rule inet foo other drop'", fault.OK, ""},
		"input drops the answers":               {base("input priority 0", "drop", "tcp dport 8443 accept"), fault.Notice, "may drop the answers to connections from this host"},
		"input accepts SSH alone":               {base("input priority 0", "drop", "tcp dport { 22, 80 } accept", "tcp dport 443 ct state new accept"), fault.Problem, "the answers to connections from this host"},
		"input drops all":                       {base("input priority 0", "drop"), fault.Problem, "the answers to connections from this host"},
		"input accepts answers":                 {base("input priority 0", "drop", established, "tcp dport 22 accept"), fault.OK, ""},
		"output rejects":                        {base("output priority 0", "accept", established, `oifname "lo" accept`, "reject"), fault.Problem, "connections from this host"},
		"output before the translation":         {base("output priority -150", "drop"), fault.Notice, "connections from this host"},
		"postrouting drops":                     {base("postrouting priority -150", "drop"), fault.Problem, "policy drop"},
		"iptables-nft drops by policy":          {"iptables-nft -P FORWARD DROP", fault.Problem, "policy drop of chain FORWARD (table filter of iptables-nft)"},
		"iptables-legacy drops by policy":       {"iptables-legacy -P FORWARD DROP", fault.Problem, "policy drop of chain FORWARD (table filter of iptables-legacy)"},
		"iptables-legacy accepts a client":      {"iptables-legacy -P FORWARD DROP; iptables-legacy -A FORWARD -s 192.168.0.0/16 -m comment --comment 'a \"b\" -j DROP' -j ACCEPT", fault.Notice, "may drop"},
		"iptables-nft drops in mangle":          {"iptables-nft -t mangle -A FORWARD -j DROP", fault.Problem, "table mangle of iptables-nft"},
		"iptables rejects at last":              {"iptables-nft -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; iptables-nft -A FORWARD ! -i lo -j REJECT; iptables-nft -A FORWARD -j REJECT", fault.Problem, "rule '-j REJECT"},
		"nft has a table with iptables' name":   {"nft 'table ip filter { chain forward { type filter hook forward priority 0; policy drop; }; }'", fault.Problem, "policy drop of chain forward (ip table filter)"},
		"the table of kube-proxy":               {"nft 'table ip kube-proxy { chain services { }; }'", fault.Problem, "kube-proxy has rules"},
		"the chain of kube-proxy, nft":          {kubeProxy("iptables-nft"), fault.Problem, "kube-proxy has rules on this host (table nat of iptables-nft)"},
		"the chain of kube-proxy, legacy":       {kubeProxy("iptables-legacy"), fault.Problem, "kube-proxy has rules on this host (table nat of iptables-legacy)"},
		"the chains of the backend iptables":    {strings.ReplaceAll(kubeProxy("iptables-nft"), "kubernetes service", "edgeway: service"), fault.OK, ""},
		"a chain of Docker with another policy": {"iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER; iptables-nft -P FORWARD DROP", fault.Problem, "Docker's policy drop"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newRulesHost(t)
			h.sh(c.plant)
			fix := h.wantFinding(c.want, c.names)
			if c.want == fault.Notice && !isTrace(fix) {
				t.Errorf("the fix is %q", fix)
			}
			if c.want == fault.Problem {
				h.obey()
				h.well()
			}
		})
	}
}

func kubeProxy(iptables string) string {
	const format = `%[1]s -t nat -N KUBE-SERVICES
%[1]s -t nat -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
%[1]s -t nat -A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.11:8080`
	return fmt.Sprintf(format, iptables)
}

// Connections to endpoints on this host and to health check ports must pass the input hook. Edgeway does not translate
// connections to health check ports.
func TestLocalEndpointsNeedInputHook(t *testing.T) {
	for _, plant := range []string{
		base("input priority 0", "drop", "ct state established,related accept", `iifname "lo" accept`),
		"iptables-legacy -P INPUT DROP; iptables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
	} {
		h := newRulesHost(t, localEndpoint)
		h.sh(plant)
		if fix := h.wantFinding(
			fault.Problem, "connections to endpoints on this host",
		); strings.Contains(fix, "dport") {
			t.Errorf("the fix is %q", fix)
		}
		h.obey()
		h.well()
		h.question.Plan = testPlan(localEndpoint, remoteEndpoint)
		h.question.Plan.HealthChecks = []*plan.HealthCheck{{Namespace: "default", Name: "lb", Port: 30999}}
		h.wantFinding(fault.Problem, "the health check of default/lb")
		h.obey()
		h.well()
	}
}

// If a rule drops only connections that other hosts route through this host, the check returns a warning. A rule that
// drops no connection to a Service causes no finding.
func TestRulesThatDropOtherConnections(t *testing.T) {
	h := newRulesHost(t)
	h.sh(base(forward, "drop"))
	h.question.ForwardedFrontends = func(plan.Family) (string, string) {
		return "", "ClusterIP 10.96.0.10:80 of default/web"
	}
	if fix := h.wantFinding(fault.Warning, "drops forwarded connections"); isTrace(fix) {
		t.Errorf("the fix is %q", fix)
	}
	h.question.Plan = testPlan(remoteEndpoint)
	h.question.ForwardedFrontends = func(plan.Family) (string, string) { return "", "" }
	h.well()
}

func TestOwnTablesCauseNoFinding(t *testing.T) {
	h := newRulesHost(t)
	for _, table := range []string{
		"ip edgeway", "ip6 edgeway", "ip edgeway-ipvs", "ip6 edgeway-ipvs",
		"ip edgeway-ebpf", "ip6 edgeway-ebpf", "inet kube-proxy-flowtable", "inet edgeway-trace",
	} {
		h.sh(fmt.Sprintf("nft 'add table %[1]s; add chain %[1]s c { type filter hook forward priority 0; policy drop; }'", table))
		h.well()
		family, name, _ := strings.Cut(table, " ")
		to := netip.MustParseAddrPort("10.96.0.10:80")
		if fix := (Drop{
			Family: family, Table: name, Chain: "c", Destination: to,
			Protocol: plan.TCP,
		}).Fix(); !strings.HasPrefix(fix, "edgeway explain") {
			t.Errorf("table %s: the fix is %q", table, fix)
		}
		h.sh("nft delete table " + table)
	}
}

// A table that is too large causes a warning, and later runs of the check do not read it again.
func TestOversizedTableIsReadOnce(t *testing.T) {
	var rules []string
	for i := range 18_000 {
		rules = append(rules, fmt.Sprintf("tcp dport %d accept comment %q", i, strings.Repeat("x", 120)))
	}
	h := newRulesHost(t)
	c := h.node.Command(t.Context(), "nft", "-f", "-")
	c.Stdin = strings.NewReader("table inet huge {\nchain c {\ntype filter hook forward priority 0; policy drop;\n" +
		strings.Join(rules, "\n") + "\n}\n}\n")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.wantFinding(fault.Warning, "inet table huge")
	known := maps.Clone(h.reader.nextAttempts)
	h.sh("nft add table inet foo")
	h.wantFinding(fault.Warning, "inet table huge")
	if len(known) != 1 || !maps.Equal(known, h.reader.nextAttempts) {
		t.Errorf("it was read again: %v, and then %v", known, h.reader.nextAttempts)
	}
}

func TestUnchangedTablesAreNotReadAgain(t *testing.T) {
	h := newRulesHost(t)
	h.sh(base(forward, "accept"))
	h.well()
	first := h.reader.tableCache[0]
	h.well()
	if h.reader.tableCache[0] != first {
		t.Error("rules that did not change were read again")
	}
	h.sh("nft add rule inet foo c drop")
	h.wantFinding(fault.Problem, "rule 'drop'")
	h.sh("nft flush chain inet foo c")
	h.well()
}
