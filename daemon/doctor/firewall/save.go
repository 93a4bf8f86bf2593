package firewall

import (
	"strconv"
	"strings"
)

// ruleParser reads rules as iptables-save prints them.
type ruleParser struct {
	words []string
	rule  rule
	marks bool
	// module is the match whose options come.
	module string
}

// parseRule reads the text after "-A CHAIN ". marks says that the rule changes marks.
func parseRule(text string) (r rule, marks bool) {
	p := ruleParser{words: splitWords(text), rule: rule{text: text}}
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
		p.module = p.next()
		return
	case "--comment":
		p.next()
		return
	}
	var values []string
	for len(p.words) > 0 && !isOption(p.words[0]) {
		values = append(values, p.next())
	}
	c := p.match(word, values)
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

// others are the options that are not about what a packet is known to be, but about how many there were, about the
// reverse path, and about headers that no packet of a Service has.
var others = [...]struct {
	begins string
	answer answer
}{
	{"--limit-iface", maybe}, // of addrtype
	{"--limit", some},
	{"--hashlimit", some},
	{"--connlimit", some},
	{"--rcheck", some},
	{"--seconds", some},
	{"--hitcount", some},
	{"--update", some},
	{"--name", some},
	{"--rsource", some},
	{"--invert", some}, // of rpfilter, as its other options
	{"--validmark", yes},
	{"--loose", yes},
	{"--accept-local", yes},
	{"-f", no},
	{"--icmp", no},
	{"--rt-", no},
	{"--ahspi", no},
	{"--espspi", no},
}

// match reads an option of iptables or of one of its matches. What is not understood may hold.
func (p *ruleParser) match(option string, values []string) condition {
	values = append(values, "", "") // those that are missing
	switch option {
	case "--mark":
		if p.module == "mark" {
			return markCondition(values[0])
		}
	case "--tcp-flags":
		o := nftOperands["payload tcp flags"]
		return o.equal(o.bits(values[1]), o.bits(values[0]))
	case "--match-set":
		// The contents are not read: by a set of sources some clients are meant.
		if strings.HasPrefix(values[1], "src") {
			return fixed(some)
		}
	case "--src-type":
		if words := strings.ToLower(values[0]); !strings.Contains(words, "unicast") &&
			!strings.Contains(words, "local") {
			return fixed(no)
		}
	case "-i", "-o":
		if prefix, ok := strings.CutSuffix(values[0], "+"); ok {
			values[0] = prefix + "*"
		}
	}
	if o, ok := options[option]; ok {
		return condition{operand: o, common: o.flags, in: o.list(values[0])}
	}
	for _, o := range others {
		if strings.HasPrefix(option, o.begins) {
			return fixed(o.answer)
		}
	}
	return fixed(maybe)
}

// markCondition reads VALUE/MASK.
func markCondition(arg string) condition {
	text, maskText, masked := strings.Cut(arg, "/")
	if !masked {
		maskText = "0xffffffff"
	}
	n, err := strconv.ParseUint(text, 0, 32)
	mask, maskErr := strconv.ParseUint(maskText, 0, 32)
	if err != nil || maskErr != nil {
		return fixed(maybe)
	}
	return operand{field: markField}.equal(n, mask)
}

// bits adds up the flags of a list.
func (o operand) bits(list string) (sum uint64) {
	for word := range strings.SplitSeq(strings.ToLower(list), ",") {
		sum |= o.words[word]
	}
	return sum
}
