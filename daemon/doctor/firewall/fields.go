package firewall

import "edgeway/proxiers/plan"

// The numbers that conditions compare with: the kernel's nf_conntrack_common.h and nf_tables.h.
const (
	stateInvalid     = 1
	stateEstablished = 2
	stateRelated     = 4
	stateNew         = 8
	stateUntracked   = 64

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
		"invalid": stateInvalid, "established": stateEstablished, "related": stateRelated, "new": stateNew,
		"untracked": stateUntracked, "dnat": stateDNAT, "snat": stateSNAT,
	}
	statusBits = map[string]uint64{
		"expected": 1, "seen-reply": 2, "seen_reply": 2, "assured": 4, "confirmed": 8, "snat": 16, "dnat": statusDNAT, "dying": 512,
	}
	directions   = map[string]uint64{"original": 0, "reply": 1}
	addressTypes = map[string]uint64{
		"unicast": typeUnicast, "local": typeLocal, "broadcast": 3, "anycast": 4, "multicast": 5, "blackhole": 6, "unreachable": 7, "prohibit": 8,
	}
	tcpFlagBits = map[string]uint64{"fin": 1, "syn": tcpSYN, "rst": 4, "psh": 8, "ack": tcpACK, "urg": 32, "ecn": 64, "cwr": 128, "none": 0, "all": 63}
	protocols   = map[string]uint64{
		"tcp": uint64(plan.TCP), "udp": uint64(plan.UDP), "sctp": uint64(plan.SCTP), "icmp": 1, "icmpv6": 58, "ipv6-icmp": 58,
		"esp": 50, "ah": 51, "comp": 108, "udplite": 136, "dccp": 33, "igmp": 2, "gre": 47, "ipv4": 4, "ipv6": 41,
	}
	families   = map[string]uint64{"ipv4": 2, "ipv6": 10}
	etherTypes = map[string]uint64{"ip": 0x0800, "ip6": 0x86dd, "arp": 0x0806, "vlan": 0x8100}
)

// portField is the source or the destination port of packets of these protocols.
func portField(source bool, of ...plan.Protocol) field {
	return func(p *packet) value {
		for _, proto := range of {
			if p.protocol == proto {
				if source {
					return p.sport
				}
				return p.dport
			}
		}
		return value{kind: absent}
	}
}

// addrField is the source or the destination of packets of one family.
func addrField(f plan.Family, source bool) field {
	return func(p *packet) value {
		switch {
		case !p.is(f):
			return value{kind: absent}
		case source:
			return p.src
		}
		return p.dst
	}
}

// frontAddr and frontPort are those of the destination before it was translated.
func frontAddr(f plan.Family) field {
	return func(p *packet) value {
		switch {
		case p.untracked:
			return value{}
		case !p.is(f):
			return value{kind: absent}
		}
		return addressOf(p.front.Addr())
	}
}

func frontPort(p *packet) value {
	if p.untracked {
		return value{}
	}
	return numberOf(uint64(p.front.Port()))
}

// The fields that both languages of rules have.

func linkField(in bool) field {
	return func(p *packet) value {
		if in {
			return p.iif
		}
		return p.oif
	}
}

func protocolField(p *packet) value  { return numberOf(uint64(p.protocol)) }
func statusField(p *packet) value    { return p.status }
func directionField(p *packet) value { return p.direction }
func markField(p *packet) value      { return p.mark }

func tcpFlagsField(p *packet) value {
	if p.protocol != plan.TCP {
		return value{kind: absent}
	}
	return p.tcpFlags
}

func stateOrStatus(p *packet) value {
	v := p.state
	if v.kind == number {
		v.bits |= p.status.bits & statusDNAT / statusDNAT * stateDNAT
		v.known &^= stateSNAT
	}
	return v
}
