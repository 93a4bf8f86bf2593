package firewall

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers/plan"
)

// ruleParser reads rules as iptables-save prints them, of one family.
type ruleParser struct {
	family plan.Family
	words  []string
	rule   rule
	marks  bool
	// module is the match whose options come.
	module string
}

// parseRule reads the text after "-A CHAIN ". marks says that the rule changes marks.
func parseRule(f plan.Family, text string) (r rule, marks bool) {
	p := ruleParser{family: f, words: splitWords(text), rule: rule{text: text}}
	for len(p.words) > 0 && p.rule.do == goOn {
		p.option()
	}
	return p.rule, p.marks
}

// splitWords takes "..." as one word; a backslash in it escapes.
func splitWords(text string) (words []string) {
	var word strings.Builder
	quoted, escaped, begun := false, false, false
	for _, r := range text {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

// next takes a word; empty: there is none.
func (p *ruleParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// isOption tells options from their values; a value may be a negative number or an address.
func isOption(word string) bool {
	return word == "!" || len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9')
}

func (p *ruleParser) option() {
	word, not := p.next(), false
	if word == "!" {
		not, word = true, p.next()
	}
	switch word {
	case "-j", "-g":
		p.target(p.next(), word == "-g")
		return
	case "-m":
		if p.module = p.next(); slices.Contains(headers, p.module) {
			p.add(fixed(no), false)
		}
		return
	case "--comment":
		p.next()
		return
	}
	var values []string
	for len(p.words) > 0 && !isOption(p.words[0]) {
		values = append(values, p.next())
	}
	p.add(p.match(word, values), not)
}

// headers are the matches of headers that packets of Services do not have. ufw drops those of source routing.
var headers = []string{"ah", "dst", "esp", "frag", "hbh", "mh", "rt"}

func (p *ruleParser) add(c condition, not bool) {
	if c.of == nil && not {
		c.fixed = c.fixed.not()
	}
	c.not = not
	p.rule.conditions = append(p.rule.conditions, c)
}

// target takes what the rule does. What follows is the target's own.
func (p *ruleParser) target(name string, away bool) {
	switch name {
	case "ACCEPT":
		p.rule.do = accept
	case "DROP", "REJECT", "TARPIT", "CHAOS", "DELUDE", "STEAL":
		p.rule.do = drop
	case "QUEUE", "NFQUEUE":
		p.rule.do = either
	case "RETURN":
		p.rule.do = back
	case "MARK", "CONNMARK":
		p.marks = true
	default:
		p.rule.do, p.rule.to = jump, name // of another target than a chain there is no chain of the name
		if away {
			p.rule.do = jumpAway
		}
	}
	p.words = nil
}

// match reads an option of iptables or of one of its matches. What is not understood may hold.
func (p *ruleParser) match(option string, values []string) condition {
	arg := ""
	if len(values) > 0 {
		arg = values[0]
	}
	switch option {
	case "-p":
		return p.protocol(arg)
	case "-s", "-d", "--src-range", "--dst-range":
		return condition{of: addrField(p.family, option == "-s" || option == "--src-range"), in: addrSet(arg)}
	case "-i", "-o":
		return condition{of: linkField(option == "-i"), in: set{names: []string{linkPattern(arg)}}}
	case "--sport", "--sports", "--dport", "--dports":
		return condition{of: portField(strings.HasPrefix(option, "--s"), plan.TCP, plan.UDP, plan.SCTP), mask: allBits, in: portSet(arg, ":")}
	case "--mark":
		if p.module == "mark" {
			return markCondition(arg)
		}
	case "--dst-type":
		return condition{of: func(p *packet) value { return p.dstType }, mask: allBits, in: bitSet(arg, addressTypes)}
	case "--tcp-flags":
		return flagsCondition(values)
	case "--match-set":
		return fixed(setAnswer(values))
	}
	return p.matchConnection(option, arg)
}

// matchConnection is match for what is known of connections.
func (p *ruleParser) matchConnection(option, arg string) condition {
	switch option {
	case "--ctstate", "--state":
		return condition{of: stateOrStatus, mask: allBits, common: true, in: bitSet(arg, states)}
	case "--ctstatus":
		return condition{of: statusField, mask: allBits, common: true, in: bitSet(arg, statusBits)}
	case "--ctdir":
		return condition{of: directionField, mask: allBits, in: bitSet(arg, directions)}
	case "--ctorigdst":
		return condition{of: frontAddr(p.family), in: addrSet(arg)}
	case "--ctorigdstport":
		return condition{of: frontPort, mask: allBits, in: portSet(arg, ":")}
	}
	return fixed(otherMatch(option))
}

// otherMatch judges the matches that are not about what a packet is, but about how many there were.
func otherMatch(option string) answer {
	switch {
	case strings.HasPrefix(option, "--limit-iface"): // of addrtype
	case option == "-f" || strings.HasPrefix(option, "--icmp"):
		return no
	case slices.ContainsFunc([]string{"--limit", "--hashlimit", "--connlimit", "--rcheck", "--seconds", "--hitcount", "--update", "--name", "--rsource"},
		func(prefix string) bool { return strings.HasPrefix(option, prefix) }):
		return some
	}
	return maybe
}

func (p *ruleParser) protocol(arg string) condition {
	var numbers set
	if n, ok := protocols[arg]; ok {
		numbers.nums = []numRange{{n, n}}
	} else if n, err := strconv.ParseUint(arg, 10, 8); err == nil {
		numbers.nums = []numRange{{n, n}}
	} // any other one is none of a Service
	return condition{of: protocolField, mask: allBits, in: numbers}
}

// linkPattern has a '*' where iptables has a '+'.
func linkPattern(s string) string {
	if prefix, ok := strings.CutSuffix(s, "+"); ok {
		return prefix + "*"
	}
	return s
}

// addrSet reads an address, a prefix, or a range with a '-'.
func addrSet(text string) set {
	if r, ok := parseAddrs(text); ok {
		return set{addrs: []addrRange{r}}
	}
	return set{open: true}
}

func parseAddrs(text string) (addrRange, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return prefixRange(p), true
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, err := netip.ParseAddr(from)
	b, err2 := netip.ParseAddr(to)
	return addrRange{a, b}, err == nil && err2 == nil
}

// portSet reads a list of ports and ranges.
func portSet(list, between string) (s set) {
	for text := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(text, between)
		if !isRange {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err != nil || err2 != nil {
			s.open = true
			continue
		}
		s.nums = append(s.nums, numRange{a, b})
	}
	return s
}

// bitSet reads a list of names; those that are not known are left open.
func bitSet(list string, names map[string]uint64) (s set) {
	for text := range strings.SplitSeq(list, ",") {
		n, ok := names[strings.ToLower(text)]
		if !ok {
			s.open = true
			continue
		}
		s.nums = append(s.nums, numRange{n, n})
	}
	return s
}

// markCondition reads VALUE/MASK.
func markCondition(arg string) condition {
	text, maskText, masked := strings.Cut(arg, "/")
	n, err := strconv.ParseUint(text, 0, 32)
	mask := uint64(1<<32 - 1)
	if masked && err == nil {
		mask, err = strconv.ParseUint(maskText, 0, 32)
	}
	if err != nil {
		return fixed(maybe)
	}
	return condition{of: markField, mask: mask, in: set{nums: []numRange{{n, n}}}}
}

// flagsCondition reads the mask and the flags that must be set.
func flagsCondition(values []string) condition {
	if len(values) != 2 {
		return fixed(maybe)
	}
	var sums [2]uint64
	for i, list := range values {
		for _, r := range bitSet(list, tcpFlagBits).nums {
			sums[i] |= r.from
		}
	}
	return condition{of: tcpFlagsField, mask: sums[0], in: set{nums: []numRange{{sums[1], sums[1]}}}}
}

// setAnswer judges a set of ipset, whose contents are not read: by a set of sources some clients are meant.
func setAnswer(values []string) answer {
	if len(values) > 1 && strings.HasPrefix(values[1], "src") {
		return some
	}
	return maybe
}
