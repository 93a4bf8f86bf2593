package firewall

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers/plan"
)

// operand is the left side of a comparison.
type operand struct {
	of   field
	mask uint64
	// words are the names that the other side may have for numbers.
	words map[string]uint64
	// flags says that a comparison without an operator asks for a bit in common.
	flags bool
}

// match reads a comparison. What is not understood may hold.
func (r *nftRule) match(o object) condition {
	return r.compare(text(o, "op"), o["left"], o["right"])
}

func (r *nftRule) compare(op string, left, right any) condition {
	if fibOfSource(left) {
		return fixed(some) // the reverse path: packets with forged sources
	}
	l, ok := leftSide(left)
	if !ok {
		return fixed(maybe)
	}
	c := condition{of: l.of, mask: l.mask, in: r.set(l, right), not: op == "!=" || op == "!"}
	switch op {
	case "in", "!":
		c.common = l.flags
	case "<", ">", "<=", ">=":
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

func leftSide(v any) (operand, bool) {
	o, _ := v.(object)
	if len(o) != 1 {
		return operand{}, false
	}
	for what, v := range o {
		of, _ := v.(object)
		switch what {
		case "payload":
			return payload(text(of, "protocol"), text(of, "field"))
		case "meta":
			return meta(text(of, "key"))
		case "ct":
			return connection(text(of, "key"), text(of, "dir"))
		case "fib":
			if text(of, "result") == "type" && slices.Equal(words(of["flags"]), []string{"daddr"}) {
				return operand{of: func(p *packet) value { return p.dstType }, mask: allBits, words: addressTypes}, true
			}
		case "&":
			return masked(v)
		}
	}
	return operand{}, false
}

// masked reads [operand, mask].
func masked(v any) (operand, bool) {
	sides, _ := v.([]any)
	if len(sides) != 2 {
		return operand{}, false
	}
	l, ok := leftSide(sides[0])
	if !ok {
		return l, false
	}
	n, ok := sum(sides[1], l.words)
	l.mask &= n
	return l, ok
}

// fibOfSource says that the routing table is asked about a packet's source.
func fibOfSource(v any) bool {
	o, _ := v.(object)
	fib, _ := o["fib"].(object)
	return slices.Contains(words(fib["flags"]), "saddr")
}

// words gives a string, or a list of them.
func words(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, w := range v {
			if s, ok := w.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// never is for headers that packets of Services do not have.
func never(*packet) value { return value{kind: absent} }

func payload(protocol, name string) (operand, bool) {
	switch protocol {
	case "ip", "ip6":
		return networkHeader(map[string]plan.Family{"ip": plan.IPv4, "ip6": plan.IPv6}[protocol], name), true
	case "tcp", "udp", "sctp", "th":
		return transportHeader(protocol, name), true
	case "icmp", "icmpv6", "igmp", "arp", "ah", "esp", "comp", "udplite", "dccp", "gre", "geneve", "vxlan":
		return operand{of: never}, true
	}
	return operand{}, false
}

func networkHeader(f plan.Family, name string) operand {
	switch name {
	case "saddr", "daddr":
		return operand{of: addrField(f, name == "saddr")}
	case "protocol", "nexthdr":
		return operand{of: ofFamilyOnly(f, protocolField), mask: allBits, words: protocols}
	}
	return operand{of: ofFamilyOnly(f, notKnown), mask: allBits}
}

func notKnown(*packet) value { return value{} }

func ofFamilyOnly(f plan.Family, of field) field {
	return func(p *packet) value {
		if p.family != f {
			return value{kind: absent}
		}
		return of(p)
	}
}

func transportHeader(protocol, name string) operand {
	of, ok := plan.ParseProtocol(strings.ToUpper(protocol))
	list := []plan.Protocol{of}
	if !ok { // "th"
		list = []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP}
	}
	switch name {
	case "sport", "dport":
		return operand{of: portField(name == "sport", list...), mask: allBits}
	case "flags":
		return operand{of: tcpFlagsField, mask: allBits, words: tcpFlagBits, flags: true}
	}
	return operand{of: func(p *packet) value {
		if !slices.Contains(list, p.protocol) {
			return value{kind: absent}
		}
		return value{}
	}, mask: allBits}
}

// packetTypes are those of meta pkttype; all packets of Services are for this host.
var packetTypes = map[string]uint64{"host": 0, "unicast": 0, "broadcast": 1, "multicast": 2, "other": 3}

func meta(key string) (operand, bool) {
	o := operand{mask: allBits}
	switch key {
	case "iif", "iifname", "oif", "oifname":
		o.of = linkField(key[0] == 'i')
	case "l4proto":
		o.of, o.words = protocolField, protocols
	case "nfproto":
		o.of, o.words = func(p *packet) value { return numberOf(families[strings.ToLower(p.family.String())]) }, families
	case "protocol":
		o.of, o.words = func(p *packet) value {
			return numberOf(etherTypes[map[plan.Family]string{plan.IPv4: "ip", plan.IPv6: "ip6"}[p.family]])
		}, etherTypes
	case "mark":
		o.of = markField
	case "pkttype":
		o.of, o.words = func(*packet) value { return numberOf(0) }, packetTypes
	default:
		return o, false
	}
	return o, true
}

// connection reads a field of the connection. A direction is printed for those that have one.
func connection(key, dir string) (operand, bool) {
	o := operand{mask: allBits}
	family := plan.IPv4
	switch {
	case key == "state":
		o.of, o.words, o.flags = func(p *packet) value { return p.state }, states, true
	case key == "status":
		o.of, o.words, o.flags = statusField, statusBits, true
	case key == "direction":
		o.of, o.words = directionField, directions
	case key == "l3proto":
		return meta("nfproto")
	case key == "protocol":
		return meta("l4proto")
	case dir != "original":
		return o, false
	case key == "proto-dst":
		o.of = frontPort
	case key == "ip6 daddr":
		family = plan.IPv6
		fallthrough
	case key == "ip daddr":
		o.of = frontAddr(family)
	default:
		return o, false
	}
	return o, true
}

// set reads the right side of a comparison.
func (r *nftRule) set(l operand, v any) set {
	name, ok := v.(string)
	if !ok || !strings.HasPrefix(name, "@") {
		return r.member(l, v)
	}
	list, known := r.elements(name)
	s := r.all(l, list)
	s.open = s.open || !known
	return s
}

// member reads what is not the name of a set.
func (r *nftRule) member(l operand, v any) set {
	switch v := bare(v).(type) {
	case string:
		return scalar(l, v)
	case json.Number:
		n, err := strconv.ParseUint(v.String(), 10, 64)
		return set{nums: []numRange{{n, n}}, open: err != nil}
	case []any:
		return r.all(l, v)
	case object:
		return r.setObject(l, v)
	}
	return set{open: true}
}

func scalar(l operand, text string) set {
	if n, ok := l.words[text]; ok {
		return set{nums: []numRange{{n, n}}}
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return set{addrs: []addrRange{{a, a}}}
	}
	return set{names: []string{text}, open: l.words != nil}
}

// all puts sets together.
func (r *nftRule) all(l operand, list []any) (s set) {
	for _, v := range list {
		if pair, ok := v.([]any); ok && len(pair) == 2 { // of a map
			v = pair[0]
		}
		one := r.member(l, v)
		s.addrs, s.nums, s.names = append(s.addrs, one.addrs...), append(s.nums, one.nums...), append(s.names, one.names...)
		s.open = s.open || one.open
	}
	return s
}

func (r *nftRule) setObject(l operand, o object) set {
	if list, ok := o["set"].([]any); ok {
		return r.all(l, list)
	}
	if p, ok := o["prefix"].(object); ok {
		addr, _ := netip.ParseAddr(text(p, "addr"))
		n, _ := p["len"].(json.Number)
		bits, err := strconv.Atoi(n.String())
		if prefix := netip.PrefixFrom(addr, bits); err == nil && prefix.IsValid() {
			return set{addrs: []addrRange{prefixRange(prefix)}}
		}
	}
	if ends, ok := o["range"].([]any); ok && len(ends) == 2 {
		from, to := r.member(l, ends[0]), r.member(l, ends[1])
		switch {
		case len(from.addrs) == 1 && len(to.addrs) == 1:
			return set{addrs: []addrRange{{from.addrs[0].from, to.addrs[0].to}}}
		case len(from.nums) == 1 && len(to.nums) == 1:
			return set{nums: []numRange{{from.nums[0].from, to.nums[0].to}}}
		}
	}
	if n, ok := sum(o, l.words); ok {
		return set{nums: []numRange{{n, n}}}
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
