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
	// program is the iptables program that changes the table, or "" if nft changes it.
	program string
	chains  map[string]*chain
	bases   []*chain
	// err is the reason why the table could not be read.
	err error
}

// chain is a chain in a table. Only base chains have a hook.
type chain struct {
	table    *table
	name     string
	hook     string
	priority int
	drops    bool // the policy is drop
	rules    []rule
}

// rule holds the properties of a rule that the check understands.
type rule struct {
	text    string
	verdict verdict
	target  string // target is the chain that jump and jumpAway lead to
	// fresh states whether the rule matches a new connection to a Service. matchesReply states whether the rule matches
	// reply packets.
	fresh, answers answer
	// translated reports whether the rule matches a connection because the connection is translated.
	translated bool
	// out is the only output interface that the rule matches, or "" if the rule names no output interface.
	out string
	// ports holds the only destination ports that the rule matches, or nil if the rule names no ports.
	ports []string
}

type verdict uint8

const (
	goOn verdict = iota // the next rule decides
	accept
	drop // the rule drops or rejects the packet
	back // the packet returns to the calling chain
	jump
	jumpAway // the packet jumps and does not return (goto)
)

// answer is the result of matching a packet with a rule.
type answer uint8

const (
	no answer = iota
	maybe
	yes
)

var verdicts = map[string]verdict{
	"accept": accept, "queue": accept, "drop": drop, "reject": drop, "return": back, "jump": jump, "goto": jumpAway,
	"ACCEPT": accept, "NFQUEUE": accept, "QUEUE": accept, "DROP": drop, "REJECT": drop, "RETURN": back,
}

var (
	// noise matches the text of a rule that is not a condition: comments, counters and log statements.
	noise = regexp.MustCompile(`(?:^| )(?:(?:--)?comment (?:"(?:\\.|[^"\\])*"|\S+)|counter\b(?: name \S+)?|-m \w+|` +
		`log\b(?: (?:prefix "[^"]*"|(?:level|group|snaplen|flags) \S+))*)`)
	// nftVerdict and saveVerdict split a rule into conditions, verdict and target.
	nftVerdict  = regexp.MustCompile(`^(?:(.*?) )?(accept|queue|drop|reject|return|jump|goto)(?:$| (\S*))`)
	saveVerdict = regexp.MustCompile(`^(?:(.*?) )?(-[jg]) (\S+)`)
	verdictMap  = regexp.MustCompile(`^(.*) vmap (?:@\S+|\{ (.*) \})$`)

	// never matches conditions that Service packets cannot satisfy, because the conditions require ICMP or the
	// interface lo.
	never = condition(`(?:-[io]|[io]if(?:name)?) "?lo"?|icmp(?:v6)? \S+|` +
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

// condition returns an expression that matches a rule with one of the conditions, unless a "!" negates it.
func condition(text string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:.*[^! ] )?(?:` + text + `)(?: .*)?$`)
}

// words splits a list such as "a,b" or "{ a, b }".
func words(list string) []string {
	return strings.FieldsFunc(strings.ToLower(list), func(r rune) bool { return strings.ContainsRune("{}, ", r) })
}

// add parses a line and adds its rule. add converts a verdict map to one rule for each element.
func (c *chain) add(text string) {
	plain := strings.Join(strings.Fields(noise.ReplaceAllString(text, " ")), " ")
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
		if r.verdict == goOn { // the target is a chain or an extension
			r.verdict = map[string]verdict{"-j": jump, "-g": jumpAway}[m[2]]
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
	if r.fresh, r.answers = maybe, maybe; strings.Contains(conditions, " . ") {
		return // the rule compares several fields together
	}
	if m := outLink.FindStringSubmatch(conditions); m != nil {
		r.out = strings.Replace(m[1], "+", "*", 1)
	}
	if m := dport.FindStringSubmatch(conditions); m != nil {
		r.ports = words(m[1])
	}
	switch m := states.FindStringSubmatch(conditions); {
	case conditions == "":
		r.fresh, r.answers = yes, yes
	case never.MatchString(conditions), ofContainers(c.name, conditions):
		r.fresh, r.answers = no, no
	case dnat.MatchString(conditions):
		r.fresh, r.answers, r.translated = yes, yes, true
	case m != nil:
		r.ofStates(words(m[1]), onlyOf.MatchString(conditions))
	case ufwForward.MatchString(c.name) && ufwRoute.MatchString(conditions):
		r.fresh = yes
	}
	if r.ports != nil && !slices.ContainsFunc(r.ports, canBeOfClient) {
		r.answers = no
	}
}

// canBeOfClient reports whether the kernel may choose the port as a client's source port, which is the destination
// port of reply packets.
func canBeOfClient(port string) bool {
	n, err := strconv.Atoi(port)
	return err != nil || n >= firstClientPort
}

// ofStates classifies a rule that matches connection states. surely is set if the rule has no other condition. iptables
// has the additional state DNAT for translated connections.
func (r *rule) ofStates(list []string, surely bool) {
	match := maybe
	if surely {
		match = yes
	}
	r.fresh, r.answers, r.translated = no, no, slices.Contains(list, "dnat")
	if r.translated || slices.Contains(list, "new") {
		r.fresh = match
	}
	if r.translated || slices.Contains(list, "established") {
		r.answers = match
	}
}

// ofContainers reports whether a Docker rule matches only packets from containers.
func ofContainers(chain, conditions string) bool {
	return ownerOf(chain, chainOwners) == docker && chain != dockerUser && strings.HasPrefix(conditions, "-i ")
}

func (r *rule) matches(n *need, links []string) answer {
	if n.port != 0 && slices.Contains(r.ports, strconv.Itoa(int(n.port))) {
		return yes
	}
	prefix, wild := strings.CutSuffix(r.out, "*")
	isOut := func(link string) bool { return link == r.out || wild && strings.HasPrefix(link, prefix) }
	switch {
	case n.port != 0 && r.translated, r.out != "" && n.leaves && !slices.ContainsFunc(links, isOut):
		return no
	case n.answer:
		return r.answers
	}
	return r.fresh
}

// place is a rule that drops packets, or the policy of a base chain if rule is nil.
type place struct {
	base, chain *chain
	rule        *rule
}

// fate is the result of sending a packet through a chain.
type fate struct {
	// end is accept, drop, or noVerdict if the packet reaches the end of the chain.
	end verdict
	at  place // place is the rule or policy that drops the packet
	// may reports whether an earlier rule may have accepted the packet.
	may bool
}

// walk follows a need's packets through a base chain. The packets count as dropped only if a rule certainly matches
// them.
type walk struct {
	need  *need
	base  *chain
	links []string
	// known caches the results for the chains that the walk has visited, because many rules may jump to the same chain.
	known map[*chain]fate
}

func fateIn(base *chain, n *need, links []string) fate {
	w := walk{need: n, base: base, links: links, known: map[*chain]fate{}}
	f := w.in(base)
	if f.end == goOn && base.drops {
		f.end, f.at = drop, place{base: base, chain: base}
	}
	return f
}

func (w *walk) in(c *chain) (f fate) {
	if f, ok := w.known[c]; ok {
		return f
	}
	w.known[c] = fate{} // the kernel rejects loops
	defer func() { w.known[c] = f }()
	left := false // the packet may already have left the chain
	for i := range c.rules {
		r := &c.rules[i]
		match := r.matches(w.need, w.links)
		if match == no {
			continue
		}
		sub := w.apply(c, r)
		f.may = f.may || sub.may || sub.end == accept && (match == maybe || left)
		switch {
		case !r.ends(sub):
		case match == yes:
			if !left {
				f.end, f.at = sub.end, sub.at
			}
			return f
		case sub.end == goOn:
			left = true
		}
	}
	return f
}

// ends reports whether a packet that matches the rule does not reach the next rule of the chain.
func (r *rule) ends(f fate) bool { return f.end != goOn || r.verdict == back || r.verdict == jumpAway }

func (w *walk) apply(c *chain, r *rule) fate {
	switch r.verdict {
	case accept:
		return fate{end: accept}
	case drop:
		return fate{end: drop, at: place{w.base, c, r}}
	case jump, jumpAway:
		if next := c.table.chains[r.target]; next != nil {
			return w.in(next)
		}
	}
	return fate{}
}
