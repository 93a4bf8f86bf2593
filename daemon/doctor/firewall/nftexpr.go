package firewall

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// compare reads a comparison. What is not understood may hold.
func (r *nftRule) compare(op string, left, right any) condition {
	if fibOfSource(left) {
		return fixed(some) // the reverse path: packets with forged sources
	}
	l, ok := leftSide(left)
	if !ok {
		return fixed(maybe)
	}
	c := condition{operand: l, not: op == "!=" || op == "!", common: l.flags && (op == "in" || op == "!")}
	if name, ok := right.(string); ok && strings.HasPrefix(name, "@") {
		list, known := r.elements(name)
		c.in = member(l, list)
		c.in.open = c.in.open || !known
	} else {
		c.in = member(l, right)
	}
	if strings.ContainsAny(op, "<>") {
		c.in = beyond(op, c.in)
	}
	return c
}

// beyond gives the numbers on one side of one.
func beyond(op string, s set) set {
	if len(s.nums) != 1 || s.open {
		return set{open: true}
	}
	n := s.nums[0].from
	switch {
	case op == "<=":
		return set{nums: []numRange{{0, n}}}
	case op == ">=":
		return set{nums: []numRange{{n, allBits}}}
	case op == "<" && n > 0:
		return set{nums: []numRange{{0, n - 1}}}
	case op == ">" && n < allBits:
		return set{nums: []numRange{{n + 1, allBits}}}
	}
	return set{}
}

// leftSide finds what is compared: an object with one key, or some bits of it.
func leftSide(v any) (operand, bool) {
	o, _ := v.(object)
	if sides, ok := o["&"].([]any); ok && len(sides) == 2 {
		l, ok := leftSide(sides[0])
		n, isNumber := sum(sides[1], l.words)
		l.ignored |= ^n
		return l, ok && isNumber
	}
	for what, v := range o {
		of, _ := v.(object)
		header := strings.TrimSpace(what + " " + stringOf(of, "protocol"))
		parts := append([]string{
			header, stringOf(of, "dir"), stringOf(of, "result"), stringOf(of, "field"),
			stringOf(of, "key"),
		}, words(of["flags"])...)
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if l, ok := nftOperands[strings.Join(parts, " ")]; ok {
			return l, len(o) == 1
		}
		l, ok := nftOperands[header]
		return l, ok && len(o) == 1
	}
	return operand{}, false
}

// fibOfSource says that the routing table is asked about a packet's source.
func fibOfSource(v any) bool {
	o, _ := v.(object)
	fib, _ := o["fib"].(object)
	return slices.Contains(words(fib["flags"]), "saddr")
}

// words gives a string, or a list of them.
func words(v any) (out []string) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, w := range list {
		if s, ok := w.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// member reads the right side of a comparison, or an element of it.
func member(l operand, v any) (s set) {
	switch v := bare(v).(type) {
	case string:
		if strings.HasPrefix(v, "@") {
			return set{} // no set has others
		}
		return l.read(v)
	case json.Number:
		n, err := strconv.ParseUint(v.String(), 10, 64)
		return set{nums: []numRange{{n, n}}, open: err != nil}
	case []any:
		for _, one := range v {
			if pair, ok := one.([]any); ok && len(pair) == 2 { // of a map
				one = pair[0]
			}
			s.add(member(l, one))
		}
		return s
	case object:
		return memberObject(l, v)
	}
	return set{open: true}
}

func memberObject(l operand, o object) set {
	if list, ok := o["set"].([]any); ok {
		return member(l, list)
	}
	if p, ok := o["prefix"].(object); ok {
		n, _ := p["len"].(json.Number)
		if prefix, err := netip.ParsePrefix(stringOf(p, "addr") + "/" + n.String()); err == nil {
			return set{addrs: []addrRange{prefixRange(prefix)}}
		}
	}
	if ends, ok := o["range"].([]any); ok && len(ends) == 2 {
		return span(member(l, ends[0]), member(l, ends[1]))
	}
	if n, ok := sum(o, l.words); ok {
		return single(n)
	}
	return set{open: true}
}

// sum reads flags, alone or several in one, and numbers.
func sum(v any, names map[string]uint64) (total uint64, ok bool) {
	switch v := v.(type) {
	case string:
		total, ok = names[v]
		return total, ok
	case json.Number:
		n, err := strconv.ParseUint(v.String(), 10, 64)
		return n, err == nil
	case []any:
		for _, part := range v {
			n, ok := sum(part, names)
			if !ok {
				return 0, false
			}
			total |= n
		}
		return total, true
	case object:
		if list, ok := v["|"].([]any); ok {
			return sum(list, names)
		}
	}
	return 0, false
}
