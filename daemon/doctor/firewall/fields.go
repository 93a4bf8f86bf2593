package firewall

import (
	"net/netip"
	"strconv"
	"strings"

	"edgeway/proxiers/plan"
)

// field is what a condition looks at.
type field uint8

const (
	noField      field = iota // the condition is not understood
	unknownField              // it is not known of any packet
	absentField               // no packet of a Service has it
	srcField
	dstField
	sportField
	dportField
	inField
	outField
	protocolField
	familyField
	packetTypeField
	dstTypeField
	tcpFlagsField
	stateField
	statusField
	directionField
	markField
	frontAddrField // the destination before it was translated
	frontPortField
	fields
)

// The numbers that conditions compare with: the kernel's nf_conntrack_common.h and nf_tables.h.
const (
	stateEstablished = 2
	stateNew         = 8

	// For iptables two bits of the status are states, too.
	stateDNAT = 256
	stateSNAT = 512

	statusDNAT = 32

	tcpSYN = 2
	tcpACK = 16

	typeUnicast = 1 // linux/rtnetlink.h
	typeLocal   = 2
)

// The names that rules have for numbers.
var (
	states = map[string]uint64{
		"invalid": 1, "established": stateEstablished, "related": 4, "new": stateNew, "untracked": 64, "dnat": stateDNAT, "snat": stateSNAT,
	}
	statusBits = map[string]uint64{
		"expected": 1, "seen-reply": 2, "seen_reply": 2, "assured": 4, "confirmed": 8, "snat": 16, "dnat": statusDNAT, "dying": 512,
	}
	directions   = map[string]uint64{"original": 0, "reply": 1}
	addressTypes = map[string]uint64{
		"unicast": typeUnicast, "local": typeLocal, "broadcast": 3, "anycast": 4, "multicast": 5, "blackhole": 6, "unreachable": 7, "prohibit": 8,
	}
	packetTypes = map[string]uint64{"host": 0, "unicast": 0, "broadcast": 1, "multicast": 2, "other": 3} // all of Services are for this host
	tcpFlagBits = map[string]uint64{"fin": 1, "syn": tcpSYN, "rst": 4, "psh": 8, "ack": tcpACK, "urg": 32, "ecn": 64, "cwr": 128, "none": 0, "all": 63}
	protocols   = map[string]uint64{
		"tcp": uint64(plan.TCP), "udp": uint64(plan.UDP), "sctp": uint64(plan.SCTP), "icmp": 1, "icmpv6": 58, "ipv6-icmp": 58,
		"esp": 50, "ah": 51, "comp": 108, "udplite": 136, "dccp": 33, "igmp": 2, "gre": 47, "ipv4": 4, "ipv6": 41,
	}
	families = map[string]uint64{"ipv4": uint64(plan.IPv4), "ipv6": uint64(plan.IPv6), "ip": uint64(plan.IPv4), "ip6": uint64(plan.IPv6), "arp": 0, "vlan": 0}
)

// operand is the left side of a comparison. It holds for no packets but those of its family and protocol.
type operand struct {
	field    field
	family   plan.Family   // 0: any
	protocol plan.Protocol // 0: any
	// ignored are the bits of a number that do not count.
	ignored uint64
	// words are the names that the other side may have for numbers.
	words map[string]uint64
	// flags says that a comparison may ask for a bit in common.
	flags bool
}

// nftOperands are what nftables compares, by the words of libnftables-json(5); of the rest of a header less is known.
var nftOperands = map[string]operand{
	"payload ip": {field: unknownField, family: plan.IPv4}, "payload ip6": {field: unknownField, family: plan.IPv6},
	"payload ip saddr": {field: srcField, family: plan.IPv4}, "payload ip6 saddr": {field: srcField, family: plan.IPv6},
	"payload ip daddr": {field: dstField, family: plan.IPv4}, "payload ip6 daddr": {field: dstField, family: plan.IPv6},
	"payload ip protocol": {field: protocolField, family: plan.IPv4, words: protocols},
	"payload ip6 nexthdr": {field: protocolField, family: plan.IPv6, words: protocols},

	"payload th": {field: unknownField}, "payload th sport": {field: sportField}, "payload th dport": {field: dportField},
	"payload tcp": {field: unknownField, protocol: plan.TCP}, "payload udp": {field: unknownField, protocol: plan.UDP},
	"payload tcp sport": {field: sportField, protocol: plan.TCP}, "payload udp sport": {field: sportField, protocol: plan.UDP},
	"payload tcp dport": {field: dportField, protocol: plan.TCP}, "payload udp dport": {field: dportField, protocol: plan.UDP},
	"payload tcp flags":  {field: tcpFlagsField, protocol: plan.TCP, words: tcpFlagBits, flags: true},
	"payload sctp":       {field: unknownField, protocol: plan.SCTP},
	"payload sctp sport": {field: sportField, protocol: plan.SCTP}, "payload sctp dport": {field: dportField, protocol: plan.SCTP},

	"payload icmp": {field: absentField}, "payload icmpv6": {field: absentField}, "payload igmp": {field: absentField},
	"payload ah": {field: absentField}, "payload esp": {field: absentField}, "payload comp": {field: absentField},
	"payload udplite": {field: absentField}, "payload dccp": {field: absentField}, "payload gre": {field: absentField},
	"payload geneve": {field: absentField}, "payload vxlan": {field: absentField}, "payload arp": {field: absentField},
	"exthdr": {field: absentField}, "ip option": {field: absentField},

	"meta iif": {field: inField}, "meta iifname": {field: inField}, "meta oif": {field: outField}, "meta oifname": {field: outField},
	"meta mark": {field: markField}, "meta pkttype": {field: packetTypeField, words: packetTypes},
	"meta l4proto": {field: protocolField, words: protocols}, "ct protocol": {field: protocolField, words: protocols},
	"meta nfproto": {field: familyField, words: families}, "ct l3proto": {field: familyField, words: families},
	"meta protocol": {field: familyField, words: families},

	"ct state":             {field: stateField, words: states, flags: true, ignored: stateDNAT | stateSNAT},
	"ct status":            {field: statusField, words: statusBits, flags: true},
	"ct direction":         {field: directionField, words: directions},
	"ct original ip daddr": {field: frontAddrField, family: plan.IPv4}, "ct original ip6 daddr": {field: frontAddrField, family: plan.IPv6},
	"ct original proto-dst": {field: frontPortField},
	"fib type daddr":        {field: dstTypeField, words: addressTypes},
}

// options are what iptables compares.
var options = map[string]operand{
	"-s": {field: srcField}, "--src-range": {field: srcField}, "-d": {field: dstField}, "--dst-range": {field: dstField},
	"-i": {field: inField}, "-o": {field: outField}, "-p": {field: protocolField, words: protocols},
	"--sport": {field: sportField}, "--sports": {field: sportField}, "--dport": {field: dportField}, "--dports": {field: dportField},
	"--dst-type": {field: dstTypeField, words: addressTypes}, "--pkt-type": {field: packetTypeField, words: packetTypes},
	"--ctstate": {field: stateField, words: states, flags: true}, "--state": {field: stateField, words: states, flags: true},
	"--ctstatus": {field: statusField, words: statusBits, flags: true}, "--ctdir": {field: directionField, words: directions},
	"--ctorigdst": {field: frontAddrField}, "--ctorigdstport": {field: frontPortField},
}

// read gives what one word of either language stands for: a name, a number, an address or a prefix.
func (o operand) read(word string) set {
	if o.field == inField || o.field == outField {
		return set{names: []string{word}}
	}
	if n, ok := o.words[strings.ToLower(word)]; ok {
		return single(n)
	}
	if n, err := strconv.ParseUint(word, 10, 64); err == nil {
		return single(n)
	}
	if p, err := netip.ParsePrefix(word); err == nil {
		return set{addrs: []addrRange{prefixRange(p)}}
	}
	if a, err := netip.ParseAddr(word); err == nil {
		return set{addrs: []addrRange{{a, a}}}
	}
	return set{open: o.field != protocolField} // any other protocol is none of a Service
}

// list reads words and ranges of them, as iptables has them: "22,8000:8100" or "10.0.0.1-10.0.0.9".
func (o operand) list(text string) (s set) {
	if o.field == inField || o.field == outField {
		return o.read(text)
	}
	for word := range strings.SplitSeq(text, ",") {
		one := o.read(word)
		for _, between := range []string{"-", ":"} {
			if from, to, ok := strings.Cut(word, between); ok && one.open {
				one = span(o.read(from), o.read(to))
			}
		}
		s.add(one)
	}
	return s
}
