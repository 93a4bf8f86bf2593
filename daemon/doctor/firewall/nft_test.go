package firewall

import (
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Statements as nft 1.0.6 prints them.
const (
	dropped     = `{"drop": null}`
	accepted    = `{"accept": null}`
	isNew       = `{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}}`
	established = `{"match": {"op": "==", "left": {"ct": {"key": "state"}}, "right": {"set": ["established", "related"]}}}`
	translated  = `{"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}`
	fromEth9    = `{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth9"}}`
	toEth1      = `{"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "eth*"}}`
	fromLAN     = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "192.168.0.0", "len": 16}}}}`
	notFromLAN  = `{"match": {"op": "!=", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "192.168.0.0", "len": 16}}}}`
	listed      = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"set": ["203.0.113.7", {"prefix": {"addr": "198.51.100.0", "len": 24}}]}}}`
	web         = `{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [80, 443]}}}`
	high        = `{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"range": [8000, 9000]}}}`
	above       = `{"match": {"op": ">", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 8079}}`
	highUDP     = `{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 8080}}`
	rate        = `{"limit": {"rate": 25, "burst": 5, "per": "second", "inv": true}}`
	noSYN       = `{"match": {"op": "!=", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, {"|": ["fin", "syn", "rst", "ack"]}]}, "right": "syn"}}`
	ipv6        = `{"match": {"op": "==", "left": {"meta": {"key": "nfproto"}}, "right": "ipv6"}}`
	foreignMark = `{"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": 7}}`
	marking     = `{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 7}}`
	masquerades = `{"match": {"op": "==", "left": {"&": [{"meta": {"key": "mark"}}, 16384]}, "right": 16384}}`
	mystery     = `{"match": {"op": "==", "left": {"osf": {"key": "name"}}, "right": "Linux"}}`
	byState     = `{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["established", {"accept": null}], ["new", {"drop": null}]]}}}`
	byLinks     = `{"vmap": {"key": {"concat": [{"meta": {"key": "iifname"}}, {"meta": {"key": "oifname"}}]}, "data": {"set": [[{"concat": ["eth0", "eth1"]}, {"jump": {"target": "away"}}]]}}}`
	away        = `{"jump": {"target": "away"}}`
	toEndpoint  = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": {"range": ["10.244.0.0", "10.244.255.255"]}}}`
	toNodePort  = `{"match": {"op": "==", "left": {"ct": {"key": "ip daddr", "dir": "original"}}, "right": "192.0.2.10"}}`
	reversePath = `{"match": {"op": "==", "left": {"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, "right": false}}`
	oldRouting  = `{"match": {"op": "==", "left": {"exthdr": {"name": "rt", "field": "type"}}, "right": 0}}`
	queued      = `{"queue": {"num": 0}}`
)

// What becomes of a connection from outside by a NodePort, which is forwarded from eth0 to eth1 and answered.
func TestForwardedConnections(t *testing.T) {
	cases := map[string]struct {
		policy string
		rules  []string
		want   fault.Severity
	}{
		"an empty chain":                        {"accept", nil, fault.OK},
		"policy drop":                           {"drop", nil, fault.Problem},
		"answers alone are accepted":            {"drop", []string{"[" + established + ", " + accepted + "]"}, fault.Problem},
		"answers are not accepted":              {"drop", []string{"[" + isNew + ", " + accepted + "]"}, fault.Problem},
		"translated connections are accepted":   {"drop", []string{"[" + translated + ", " + accepted + "]"}, fault.OK},
		"both are accepted":                     {"drop", []string{"[" + established + ", " + accepted + "]", "[" + isNew + ", " + accepted + "]"}, fault.OK},
		"new connections are dropped":           {"accept", []string{"[" + isNew + ", " + dropped + "]"}, fault.Problem},
		"rejected":                              {"accept", []string{`[{"counter": {"packets": 0, "bytes": 0}}, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]`}, fault.Problem},
		"another interface":                     {"accept", []string{"[" + fromEth9 + ", " + dropped + "]"}, fault.OK},
		"an interface by pattern":               {"accept", []string{"[" + toEth1 + ", " + dropped + "]"}, fault.Problem},
		"a list of clients is dropped":          {"accept", []string{"[" + listed + ", " + dropped + "]", "[" + fromLAN + ", " + dropped + "]"}, fault.OK},
		"some clients are accepted":             {"drop", []string{"[" + established + ", " + accepted + "]", "[" + fromLAN + ", " + accepted + "]"}, fault.Warning},
		"all but some clients are dropped":      {"accept", []string{"[" + isNew + ", " + notFromLAN + ", " + dropped + "]"}, fault.Warning},
		"other ports are accepted":              {"drop", []string{"[" + established + ", " + accepted + "]", "[" + web + ", " + accepted + "]"}, fault.Problem},
		"the endpoint's port":                   {"accept", []string{"[" + high + ", " + dropped + "]"}, fault.Problem},
		"the endpoint's port, by comparison":    {"accept", []string{"[" + isNew + ", " + above + ", " + dropped + "]"}, fault.Problem},
		"another protocol":                      {"accept", []string{"[" + highUDP + ", " + dropped + "]"}, fault.OK},
		"beyond a rate":                         {"accept", []string{"[" + rate + ", " + dropped + "]"}, fault.OK},
		"connections that begin without SYN":    {"accept", []string{"[" + noSYN + ", " + isNew + ", " + dropped + "]"}, fault.OK},
		"the other family":                      {"accept", []string{"[" + ipv6 + ", " + dropped + "]"}, fault.OK},
		"a mark that nobody sets":               {"accept", []string{"[" + foreignMark + ", " + dropped + "]"}, fault.OK},
		"a mark that somebody sets":             {"accept", []string{"[" + fromEth9 + ", " + marking + "]", "[" + foreignMark + ", " + dropped + "]"}, fault.Warning},
		"the mark for masquerade":               {"drop", []string{"[" + established + ", " + accepted + "]", "[" + masquerades + ", " + accepted + "]"}, fault.OK},
		"a match that is not known":             {"accept", []string{"[" + mystery + ", " + dropped + "]"}, fault.Warning},
		"a match of iptables":                   {"accept", []string{`[{"xt": null}, {"drop": null}]`}, fault.Warning},
		"a verdict map":                         {"accept", []string{"[" + byState + "]"}, fault.Problem},
		"a verdict map with two keys":           {"accept", []string{"[" + byLinks + "]", "away: [" + isNew + ", " + dropped + "]"}, fault.Problem},
		"a chain that returns":                  {"accept", []string{"[" + away + "]", "away: [" + toEth1 + `, {"return": null}]`, "away: [" + dropped + "]"}, fault.OK},
		"a chain that drops":                    {"accept", []string{"[" + away + "]", "away: [" + fromEth9 + `, {"return": null}]`, "away: [" + dropped + "]"}, fault.Problem},
		"a chain that is never left":            {"drop", []string{`[{"goto": {"target": "away"}}]`, "[" + accepted + "]", "away: [" + fromEth9 + ", " + accepted + "]"}, fault.Problem},
		"a chain that calls itself":             {"accept", []string{"[" + away + "]", "away: [" + away + "]"}, fault.OK},
		"the endpoint's address":                {"accept", []string{"[" + toEndpoint + ", " + dropped + "]"}, fault.Problem},
		"the address before the translation":    {"accept", []string{"[" + toNodePort + ", " + isNew + ", " + dropped + "]"}, fault.Problem},
		"forged sources":                        {"accept", []string{"[" + reversePath + ", " + dropped + "]"}, fault.OK},
		"a header that nobody sends":            {"accept", []string{"[" + oldRouting + ", " + dropped + "]"}, fault.OK},
		"a program decides":                     {"accept", []string{"[" + queued + "]"}, fault.Warning},
		"what comes after an unconditional end": {"accept", []string{"[" + accepted + "]", "[" + dropped + "]"}, fault.OK},
	}
	for name, c := range cases {
		got := asked(testPlan(plan.NodePort), mustParse(t, chainJSON("forward", 0, c.policy, c.rules...)))
		if worst := fault.Worst(got); worst != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, worst, c.want, got)
		}
	}
}

// A packet has its old destination before -100 at prerouting and output, and the endpoint's behind.
func TestTheDestinationDependsOnThePriority(t *testing.T) {
	toClusterIP := strings.Replace(toEndpoint, `{"range": ["10.244.0.0", "10.244.255.255"]}`, `"10.96.0.10"`, 1)
	for _, c := range []struct {
		hook     string
		priority int
		rule     string
		want     fault.Severity
	}{
		{"output", -150, toClusterIP, fault.Problem},
		{"output", -150, toEndpoint, fault.OK},
		{"output", 0, toClusterIP, fault.OK},
		{"output", 0, toEndpoint, fault.Problem},
		{"postrouting", -150, toEndpoint, fault.Problem},
		{"input", 0, toEndpoint, fault.OK},
		{"forward", 0, toEndpoint, fault.Warning}, // nobody must come to a ClusterIP by this host
	} {
		got := asked(testPlan(plan.ClusterIP), mustParse(t, chainJSON(c.hook, c.priority, "accept", "["+c.rule+", "+isNew+", "+dropped+"]")))
		if worst := fault.Worst(got); worst != c.want {
			t.Errorf("%s at %s, %d: %s, want %s: %+v", c.rule, c.hook, c.priority, worst, c.want, got)
		}
	}
}

// The answers to connections of the host come in by input.
func TestAnswersToTheHost(t *testing.T) {
	got := asked(testPlan(plan.ClusterIP), mustParse(t, chainJSON("input", 0, "drop")))
	if len(got) != 1 || got[0].Severity != fault.Problem || !strings.Contains(got[0].Message, "the answers to connections from this host to default/web:http/TCP") {
		t.Errorf("%+v", got)
	}
	if want := "nft insert rule inet foo c ct status dnat accept"; got[0].Fix != want {
		t.Errorf("mended by %q, want %q", got[0].Fix, want)
	}
}

// A set that is there is looked into; one that was not listed may have anything.
func TestNamedSets(t *testing.T) {
	const match = `[{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "@nets"}}, {"drop": null}]`
	for elements, want := range map[string]fault.Severity{
		``: fault.Warning,
		`, {"set": {"family": "inet", "table": "foo", "name": "nets", "type": "ipv4_addr", "elem": [{"prefix": {"addr": "10.244.0.0", "len": 16}}]}}`: fault.Problem,
		`, {"set": {"family": "inet", "table": "foo", "name": "nets", "type": "ipv4_addr", "elem": ["10.9.9.9", "@nets"]}}`:                           fault.OK,
		`, {"set": {"family": "inet", "table": "foo", "name": "nets", "type": "ipv4_addr", "flags": ["interval"]}}`:                                   fault.OK,
		`, {"set": {"family": "inet", "table": "bar", "name": "nets", "type": "ipv4_addr", "elem": ["10.9.9.9"]}}`:                                    fault.Warning,
	} {
		text := strings.Replace(chainJSON("forward", 0, "accept", match), `{"metainfo": {"version": "1.0.6"}}`, `{"metainfo": {"version": "1.0.6"}}`+elements, 1)
		if got := asked(testPlan(plan.NodePort), mustParse(t, text)); fault.Worst(got) != want {
			t.Errorf("with %q: %+v, want %s", elements, got, want)
		}
	}
}

// However many places drop connections, the heaviest are told, and the others are counted.
func TestManyPlaces(t *testing.T) {
	var tables []*table
	for i := range 50 {
		text := chainJSON("forward", 0, "accept", "["+mystery+", "+dropped+"]")
		if i == 49 {
			text = chainJSON("forward", 0, "drop")
		}
		tables = append(tables, mustParse(t, text)...)
	}
	got := asked(testPlan(plan.NodePort), tables)
	if len(got) != maxTold+1 || got[0].Severity != fault.Problem || !strings.HasPrefix(got[maxTold].Message, "there are 30 more places") {
		t.Errorf("%d findings: %+v", len(got), got)
	}
}

// FuzzParse gives the parser anything. Whatever it makes of it, rules without a word that drops drop nothing.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"firewalld.json", "libvirt.json"} {
		f.Add([]byte(testdata(f, name)))
	}
	f.Add([]byte(chainJSON("forward", 0, "drop", "["+byState+"]", "["+byLinks+"]", "["+noSYN+", "+queued+"]")))
	f.Add([]byte(chainJSON("input", -1, "accept", "["+away+"]", "away: ["+away+", "+reversePath+", "+rate+"]")))
	f.Add([]byte(`{"nftables": [{"set": {"name": "a", "elem": ["@a", {"elem": {"val": "@a"}}, [1, 2], null]}}]}`))
	ways := newSurvey(everything(), testHost{}).ways
	f.Fuzz(func(t *testing.T, text []byte) {
		tables, err := parseNFT(text)
		got := judge(tables, ways, 14)
		harmless := true
		for _, word := range []string{"drop", "reject", "queue", "synproxy", "fwd", "vmap", `\`} {
			harmless = harmless && !strings.Contains(strings.ToLower(string(text)), word)
		}
		if harmless && fault.Worst(got) != fault.OK && !strings.HasPrefix(got[0].Message, "there are too many rules") {
			t.Errorf("%v, and %+v", err, got)
		}
		for _, g := range got {
			if len(g.Message) > 2000+len(text) || g.Severity != fault.OK && g.Fix == "" {
				t.Errorf("%+v", g)
			}
		}
	})
}
