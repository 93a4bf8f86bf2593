package firewall

import (
	"net/netip"
	"slices"
	"strings"
)

// answer says whether a condition holds for a packet.
type answer uint8

// The answers, in the order of certainty: a rule with several conditions is as certain as the least of them.
const (
	no answer = iota
	// some: for some clients, or beyond a rate. A rule that drops these does so on purpose.
	some
	// maybe: the condition is not understood, or asks for what is not known.
	maybe
	yes
)

func (a answer) not() answer {
	switch a {
	case no:
		return yes
	case yes:
		return no
	}
	return maybe // for all but some clients is no list of single ones
}

// kind says what is known of a value.
type kind uint8

const (
	unknown kind = iota
	absent       // the packet has no such field: no condition on it holds, not even a negated one
	client       // the address of any client
	address
	ephemeral // a port that the client's kernel has chosen
	number
	name
)

// value is one field of a packet.
type value struct {
	kind kind
	addr netip.Addr
	name string
	// bits is the number, as far as it is known: where known has a one.
	bits, known uint64
}

const allBits = ^uint64(0)

func numberOf(n uint64) value { return value{kind: number, bits: n, known: allBits} }
func nameOf(s string) value   { return value{kind: name, name: s} }

// addressOf takes the zero address for that of any client.
func addressOf(a netip.Addr) value {
	if !a.IsValid() {
		return value{kind: client}
	}
	return value{kind: address, addr: a}
}

// addrRange and numRange include both ends.
type (
	addrRange struct{ from, to netip.Addr }
	numRange  struct{ from, to uint64 }
)

// set is what a field is compared with.
type set struct {
	addrs []addrRange
	nums  []numRange
	// names of interfaces may end in a '*', for all that begin so.
	names []string
	// open says that the set has more, which is not known.
	open bool
}

func single(n uint64) set { return set{nums: []numRange{{n, n}}} }

func (s *set) add(o set) {
	s.addrs, s.nums, s.names = append(s.addrs, o.addrs...), append(s.nums, o.nums...), append(s.names, o.names...)
	s.open = s.open || o.open
}

// span is from one address or number to another one.
func span(from, to set) set {
	switch {
	case len(from.addrs) == 1 && len(to.addrs) == 1:
		return set{addrs: []addrRange{{from.addrs[0].from, to.addrs[0].to}}}
	case len(from.nums) == 1 && len(to.nums) == 1:
		return set{nums: []numRange{{from.nums[0].from, to.nums[0].to}}}
	}
	return set{open: true}
}

func prefixRange(p netip.Prefix) addrRange {
	last := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 1 << (7 - i%8)
	}
	to, _ := netip.AddrFromSlice(last)
	return addrRange{p.Masked().Addr(), to}
}

// whole says that every address of its family is in the range.
func (r addrRange) whole() bool {
	return r == prefixRange(netip.PrefixFrom(r.from, 0))
}

// nobodys says that no client of another host has an address of the range.
func (r addrRange) nobodys() bool {
	special := func(a netip.Addr) bool { return a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() }
	return special(r.from) && (special(r.to) || r.to.Is4() && r.to.As4()[0] == 255)
}

// holds says whether v is in the set; with common, whether it has a bit in common with one of the set's numbers. mask
// is applied to a number first.
func (s *set) holds(v value, mask uint64, common bool) answer {
	found := no
	switch v.kind {
	case absent:
		return no
	case unknown:
		return maybe
	case client:
		found = s.holdsClient()
	case address:
		found = certainly(slices.ContainsFunc(s.addrs,
			func(r addrRange) bool { return r.from.Compare(v.addr) <= 0 && v.addr.Compare(r.to) <= 0 }))
	case ephemeral:
		found = s.holdsEphemeral()
	case number:
		for _, r := range s.nums {
			found = max(found, r.holds(v, mask, common))
		}
	case name:
		found = certainly(slices.ContainsFunc(s.names, v.isNamed))
	}
	switch {
	case s.open && v.kind == client: // a list of clients is one of some
		return max(found, some)
	case s.open:
		return max(found, maybe)
	}
	return found
}

func certainly(is bool) answer {
	if is {
		return yes
	}
	return no
}

func (v value) isNamed(pattern string) bool {
	prefix, wild := strings.CutSuffix(pattern, "*")
	return pattern == v.name || wild && strings.HasPrefix(v.name, prefix)
}

func (s *set) holdsClient() answer {
	found := no
	for _, r := range s.addrs {
		switch {
		case r.whole():
			return yes
		case !r.nobodys():
			found = some
		}
	}
	return found
}

// firstEphemeral is the lowest port that programs get without asking for it, on any system.
const firstEphemeral = 1024

func (s *set) holdsEphemeral() answer {
	found := no
	for _, r := range s.nums {
		switch {
		case r.from <= firstEphemeral && r.to >= 65535:
			return yes
		case r.to >= firstEphemeral:
			found = maybe
		}
	}
	return found
}

func (r numRange) holds(v value, mask uint64, common bool) answer {
	bits, known := v.bits&mask, v.known|^mask
	switch {
	case common && r.from&bits&known != 0:
		return yes
	case common && r.from&^known == 0:
		return no
	case common:
		return maybe
	case known == allBits && r.from <= bits && bits <= r.to:
		return yes
	case known == allBits || r.from == r.to && (bits^r.from)&known != 0:
		return no
	}
	return maybe
}

// condition is one of a rule. One that is not understood has a fixed answer.
type condition struct {
	operand
	fixed       answer
	common, not bool
	in          set
}

func fixed(a answer) condition { return condition{fixed: a} }

// equal compares some of the bits of a number.
func (o operand) equal(n, mask uint64) condition {
	o.ignored |= ^mask
	return condition{operand: o, in: single(n)}
}

func (c *condition) holds(p *packet) answer {
	a := c.fixed
	if c.field != noField {
		v := p.of[c.field]
		if v.kind == absent || c.family != 0 && c.family != p.family || c.protocol != 0 && c.protocol != p.protocol {
			return no
		}
		a = c.in.holds(v, ^c.ignored, c.common)
	}
	if c.not {
		a = a.not()
	}
	return a
}
