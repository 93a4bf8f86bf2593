package nfttable

import (
	"net/netip"
	"strconv"

	"edgeway/proxiers/plan"
)

// Element is the comparable key of an element in a fixed set. Fields that the set's key does not include are zero.
type Element struct {
	Family   plan.Family
	Set      SetID
	Proto    plan.Protocol
	PeerBits uint8
	Port     uint16
	PeerPort uint16
	Slot     uint32
	Number   ChainNumber
	Addr     netip.Addr
	Peer     netip.Addr
}

// Value is the value of a map element.
type Value struct {
	Chain    string
	Number   ChainNumber
	Endpoint netip.AddrPort
	// comment is the comment that nft displays with the element if Set.Named is set.
	comment comment
}

// Entry is an element with its value.
type Entry struct {
	Element
	Value
}

// ChainNumber identifies a chain in maps. nft displays a ChainNumber as "major:minor" in hexadecimal, because the
// number's nft type is classid, the type of a packet priority.
type ChainNumber uint32

func (n ChainNumber) append(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(n>>16), 16)
	b = append(b, ':')
	return strconv.AppendUint(b, uint64(n&0xffff), 16)
}

// appendKey appends an element's key in nft's syntax. Each field of the key is a parsed address, protocol or number.
func (s *Set) appendKey(b []byte, e *Element) []byte {
	for i, f := range s.Key {
		if i > 0 {
			b = append(b, " . "...)
		}
		switch f {
		case Addr:
			b = appendAddr(b, e.Addr)
		case Proto:
			b = append(b, ProtoName(e.Proto)...)
		case Port:
			b = strconv.AppendUint(b, uint64(e.Port), 10)
		case Slot:
			b = strconv.AppendUint(b, uint64(e.Slot), 10)
		case Peer:
			b = appendAddr(b, e.Peer)
		case PeerPort:
			b = strconv.AppendUint(b, uint64(e.PeerPort), 10)
		case PeerPrefix:
			b = appendAddr(b, e.Peer)
			b = append(b, '/')
			b = strconv.AppendUint(b, uint64(e.PeerBits), 10)
		case Number:
			b = e.Number.append(b)
		}
	}
	return b
}

// appendValue appends the value in nft's syntax, or nothing if the element has no value.
func (v *Value) appendValue(b []byte) []byte {
	switch {
	case v.Chain != "":
		b = append(b, "goto "...)
		b = append(b, v.Chain...)
	case v.Number != 0:
		b = v.Number.append(b)
	case v.Endpoint.IsValid():
		b = appendAddr(b, v.Endpoint.Addr())
		b = append(b, " . "...)
		b = strconv.AppendUint(b, uint64(v.Endpoint.Port()), 10)
	}
	return b
}

// appendAddr appends an address without the IPv6 zone, which has no meaning in a rule.
func appendAddr(b []byte, a netip.Addr) []byte {
	return a.WithZone("").AppendTo(b)
}

// ProtoName returns the name of a protocol in nft's syntax.
func ProtoName(p plan.Protocol) string {
	switch p {
	case plan.TCP:
		return "tcp"
	case plan.UDP:
		return "udp"
	case plan.SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}
