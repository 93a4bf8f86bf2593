package firewall

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type table struct {
	family string // family is "ip", "ip6" or "inet"
	name   string
	// program is the iptables program that lists and changes the table, or "" for nft.
	program string
	chains  map[string]*chain
	bases   []*chain
	// err explains why Edgeway could not read the table.
	err error
}

// chain is an nftables or iptables chain. Only base chains have a hook.
type chain struct {
	table    *table
	name     string
	hook     string
	priority int
	drops    bool // the policy is drop
	rules    []rule
}

// rule holds those properties of a rule that the check understands.
type rule struct {
	text    string
	verdict verdict
	target  string // target is the chain that jump and gotoChain lead to
	// matchesNew states whether the rule matches a new connection to a Service, and matchesReply states whether it
	// matches reply packets.
	matchesNew, matchesReply matchState
	// translated reports whether the rule matches translated connections.
	translated bool
	// output is the output interface to which the rule is limited, or "" if the rule names no output interface.
	output string
	// ports lists the destination ports to which the rule is limited, or is nil if the rule names no ports.
	ports []string
}

type verdict uint8

const (
	noVerdict verdict = iota // the next rule decides
	accept
	drop           // the rule drops or rejects the packet
	returnToCaller // the packet returns to the calling chain
	jump
	gotoChain // the packet jumps and does not return (goto)
)

// matchState states whether a rule matches a packet.
type matchState uint8

const (
	no matchState = iota
	maybe
	yes
)

var verdicts = map[string]verdict{
	"accept": accept, "queue": accept, "drop": drop, "reject": drop, "return": returnToCaller,
	"jump": jump, "goto": gotoChain,
	"ACCEPT": accept, "NFQUEUE": accept, "QUEUE": accept, "DROP": drop, "REJECT": drop, "RETURN": returnToCaller,
}

var (
	// nonCondition matches the parts of a rule's text that are not conditions: comments, counters and log statements.
	nonCondition = regexp.MustCompile(`(?:^| )(?:(?:--)?comment (?:"(?:\\.|[^"\\])*"|\S+)|counter\b(?: name \S+)?|` +
		`-m \w+|log\b(?: (?:prefix "[^"]*"|(?:level|group|snaplen|flags) \S+))*)`)
	// nftVerdict and saveVerdict split a rule into conditions, verdict and target.
	nftVerdict  = regexp.MustCompile(`^(?:(.*?) )?(accept|queue|drop|reject|return|jump|goto)(?:$| (\S*))`)
	saveVerdict = regexp.MustCompile(`^(?:(.*?) )?(-[jg]) (\S+)`)
	verdictMap  = regexp.MustCompile(`^(.*) vmap (?:@\S+|\{ (.*) \})$`)

	// impossibleCondition matches conditions that no Service packet satisfies, because the conditions require ICMP or
	// the interface lo.
	impossibleCondition = condition(`(?:-[io]|[io]if(?:name)?) "?lo"?|icmp(?:v6)? \S+|` +
		`(?:-p|meta l4proto|ip protocol|ip6 nexthdr) (?:(?:ipv6-)?icmp|icmpv6|\{ icmp, ipv6-icmp \})`)
	outLink = condition(`(?:-o|oif(?:name)?) "?([^\s"{!@]+)"?`)
	states  = condition(`(?:ct state|--ctstate|--state) (\w+(?:,\w+)*|\{ \w+(?:, \w+)* \})`)
	onlyOf  = regexp.MustCompile(`^(?:ct state|--ctstate|--state) (?:\{ [^}]* \}|[\w,]+)$`)
	dnat    = regexp.MustCompile(`^(?:ct status|--ctstatus) (?:\w+,)*(?:dnat|DNAT)(?:,\w+)*$`)
	dport   = regexp.MustCompile(`^(?:-p tcp --dport|tcp dport) (\d+|\{ \d+(?:, \d+)* \})$`)
	// ufwRoute matches the rules that "ufw route allow to NETWORK" and "ufw route allow out on INTERFACE" add to the
	// chain ufwForward.
	ufwRoute   = regexp.MustCompile(`^-[do] \S+$`)
	ufwForward = regexp.MustCompile(`^ufw6?-user-forward$`)
)

// firstClientPort is the first unprivileged port.
const firstClientPort = 1024

// condition returns a regular expression that matches a rule if one of the rule's conditions matches the given pattern
// and no "!" negates that condition.
func condition(text string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:.*[^! ] )?(?:` + text + `)(?: .*)?$`)
}

// splitList splits a list such as "a,b" or "{ a, b }".
func splitList(list string) []string {
	return strings.FieldsFunc(strings.ToLower(list), func(r rune) bool { return strings.ContainsRune("{}, ", r) })
}

// add parses a line of nft or iptables-save output and adds its rule to the chain. A verdict map becomes one rule for
// each element.
func (c *chain) add(text string) {
	plain := strings.Join(strings.Fields(nonCondition.ReplaceAllString(text, " ")), " ")
	if m := verdictMap.FindStringSubmatch(plain); m != nil {
		for element := range strings.SplitSeq(m[2], ", ") {
			value, verdict, ok := strings.Cut(element, " : ")
			if !ok { // the text names a map
				value, verdict = "@", "accept"
			}
			c.addRule(text, m[1]+" "+value+" "+verdict)
		}
		return
	}
	c.addRule(text, plain)
}

func (c *chain) addRule(text, plain string) {
	r := rule{text: text}
	var conditions string
	if m := saveVerdict.FindStringSubmatch(plain); m != nil {
		conditions, r.verdict, r.target = m[1], verdicts[m[3]], m[3]
		if r.verdict == noVerdict { // the target is a chain or an extension
			r.verdict = map[string]verdict{"-j": jump, "-g": gotoChain}[m[2]]
		}
	} else if m := nftVerdict.FindStringSubmatch(plain); m != nil {
		conditions, r.verdict, r.target = m[1], verdicts[m[2]], m[3]
	} else {
		return // the rule only counts, logs or marks
	}
	r.classify(c, conditions)
	c.rules = append(c.rules, r)
}

func (r *rule) classify(c *chain, conditions string) {
	if r.matchesNew, r.matchesReply = maybe, maybe; strings.Contains(conditions, " . ") {
		return // the rule compares several fields together
	}
	if m := outLink.FindStringSubmatch(conditions); m != nil {
		r.output = strings.Replace(m[1], "+", "*", 1)
	}
	if m := dport.FindStringSubmatch(conditions); m != nil {
		r.ports = splitList(m[1])
	}
	switch m := states.FindStringSubmatch(conditions); {
	case conditions == "":
		r.matchesNew, r.matchesReply = yes, yes
	case impossibleCondition.MatchString(conditions), isContainerRule(c.name, conditions):
		r.matchesNew, r.matchesReply = no, no
	case dnat.MatchString(conditions):
		r.matchesNew, r.matchesReply, r.translated = yes, yes, true
	case m != nil:
		r.classifyStates(splitList(m[1]), onlyOf.MatchString(conditions))
	case ufwForward.MatchString(c.name) && ufwRoute.MatchString(conditions):
		r.matchesNew = yes
	}
	if r.ports != nil && !slices.ContainsFunc(r.ports, canBeClientPort) {
		r.matchesReply = no
	}
}

// canBeClientPort reports whether the kernel may choose the port as a client's source port, which is the destination
// port of reply packets.
func canBeClientPort(port string) bool {
	n, err := strconv.Atoi(port)
	return err != nil || n >= firstClientPort
}

// classifyStates sets matchesNew, matchesReply and translated for a rule that matches the listed connection states.
// surely reports whether connection states are the rule's only condition. In iptables, a rule with the state DNAT
// matches translated connections.
func (r *rule) classifyStates(list []string, surely bool) {
	match := maybe
	if surely {
		match = yes
	}
	r.matchesNew, r.matchesReply, r.translated = no, no, slices.Contains(list, "dnat")
	if r.translated || slices.Contains(list, "new") {
		r.matchesNew = match
	}
	if r.translated || slices.Contains(list, "established") {
		r.matchesReply = match
	}
}

// isContainerRule reports whether a Docker rule matches only packets from containers.
func isContainerRule(chain, conditions string) bool {
	return ownerOf(chain, chainOwners) == docker && chain != dockerUser && strings.HasPrefix(conditions, "-i ")
}

func (r *rule) matches(n *need, links []string) matchState {
	if n.port != 0 && slices.Contains(r.ports, strconv.Itoa(int(n.port))) {
		return yes
	}
	prefix, wild := strings.CutSuffix(r.output, "*")
	isOut := func(link string) bool { return link == r.output || wild && strings.HasPrefix(link, prefix) }
	switch {
	case n.port != 0 && r.translated, r.output != "" && n.leaves && !slices.ContainsFunc(links, isOut):
		return no
	case n.reply:
		return r.matchesReply
	}
	return r.matchesNew
}

// ruleRef refers to a rule that drops packets or, if the field rule is nil, to the policy of a base chain.
type ruleRef struct {
	base, chain *chain
	rule        *rule
}

// chainResult is the result of sending a packet through a chain.
type chainResult struct {
	// verdict is accept, drop, or noVerdict if the packet reaches the end of the chain.
	verdict   verdict
	droppedBy ruleRef // the rule or policy that drops the packet
	// mayAccept reports whether an earlier rule may have accepted the packet.
	mayAccept bool
}

// walk follows a need's packets through a base chain. The walk counts packets as dropped by a rule only if the rule
// certainly matches them.
type walk struct {
	need  *need
	base  *chain
	links []string
	// results caches the results for the chains that the walk has visited, because many rules may jump to the same
	// chain.
	results map[*chain]chainResult
}

func followChain(base *chain, n *need, links []string) chainResult {
	w := walk{need: n, base: base, links: links, results: map[*chain]chainResult{}}
	f := w.follow(base)
	if f.verdict == noVerdict && base.drops {
		f.verdict, f.droppedBy = drop, ruleRef{base: base, chain: base}
	}
	return f
}

func (w *walk) follow(c *chain) (f chainResult) {
	if f, ok := w.results[c]; ok {
		return f
	}
	w.results[c] = chainResult{} // the kernel rejects loops
	defer func() { w.results[c] = f }()
	left := false // the packet may already have left the chain
	for i := range c.rules {
		r := &c.rules[i]
		match := r.matches(w.need, w.links)
		if match == no {
			continue
		}
		sub := w.apply(c, r)
		f.mayAccept = f.mayAccept || sub.mayAccept || sub.verdict == accept && (match == maybe || left)
		switch {
		case !r.ends(sub):
		case match == yes:
			if !left {
				f.verdict, f.droppedBy = sub.verdict, sub.droppedBy
			}
			return f
		case sub.verdict == noVerdict:
			left = true
		}
	}
	return f
}

// ends reports whether a packet that matches the rule never reaches the next rule of the chain.
func (r *rule) ends(f chainResult) bool {
	return f.verdict != noVerdict || r.verdict == returnToCaller || r.verdict == gotoChain
}

func (w *walk) apply(c *chain, r *rule) chainResult {
	switch r.verdict {
	case accept:
		return chainResult{verdict: accept}
	case drop:
		return chainResult{verdict: drop, droppedBy: ruleRef{w.base, c, r}}
	case jump, gotoChain:
		if next := c.table.chains[r.target]; next != nil {
			return w.follow(next)
		}
	}
	return chainResult{}
}
