package nftables

import (
	"net/netip"
	"strconv"

	"edgeway/proxiers/plan"
)

// setID names one of the fixed sets and maps of a table.
type setID uint8

const (
	services setID = iota
	nodePorts
	endpointsTCP
	endpointsUDP
	endpointsSCTP
	nodePortEndpointsTCP
	nodePortEndpointsUDP
	nodePortEndpointsSCTP
	learn
	learnNodePorts
	allowed
	nodePortAllowed
	hairpin
	clusterIPs
	nodePortAddrs
	loopbackAddrs
	classes
	numSets
)

// field is one part of an element's key.
type field uint8

const (
	fieldAddr field = iota
	fieldProto
	fieldPort
	fieldSlot
	fieldPeer
	fieldPeerPort
	fieldPeerPrefix
	fieldClass
)

// data is what a map's elements lead to; a set's lead to nothing.
type data uint8

const (
	noData data = iota
	verdictData
	endpointData
	classData
)

// setSpec describes the elements of a set or map.
type setSpec struct {
	name string
	key  []field
	data data
	// proto is set where the key has none because the set is for one protocol.
	proto plan.Protocol
}

// specs describes the fixed sets whose elements are written one by one.
var specs = [numSets]setSpec{
	services:              {"services", []field{fieldAddr, fieldProto, fieldPort}, classData, 0},
	nodePorts:             {"nodeports", []field{fieldProto, fieldPort}, classData, 0},
	endpointsTCP:          {"endpoints-tcp", []field{fieldAddr, fieldPort, fieldSlot}, endpointData, plan.TCP},
	endpointsUDP:          {"endpoints-udp", []field{fieldAddr, fieldPort, fieldSlot}, endpointData, plan.UDP},
	endpointsSCTP:         {"endpoints-sctp", []field{fieldAddr, fieldPort, fieldSlot}, endpointData, plan.SCTP},
	nodePortEndpointsTCP:  {"nodeport-endpoints-tcp", []field{fieldPort, fieldSlot}, endpointData, plan.TCP},
	nodePortEndpointsUDP:  {"nodeport-endpoints-udp", []field{fieldPort, fieldSlot}, endpointData, plan.UDP},
	nodePortEndpointsSCTP: {"nodeport-endpoints-sctp", []field{fieldPort, fieldSlot}, endpointData, plan.SCTP},
	learn:                 {"learn", []field{fieldAddr, fieldProto, fieldPort, fieldPeer, fieldPeerPort}, verdictData, 0},
	learnNodePorts:        {"learn-nodeports", []field{fieldProto, fieldPort, fieldPeer, fieldPeerPort}, verdictData, 0},
	allowed:               {"allowed", []field{fieldAddr, fieldProto, fieldPort, fieldPeerPrefix}, noData, 0},
	nodePortAllowed:       {"nodeport-allowed", []field{fieldProto, fieldPort, fieldPeerPrefix}, noData, 0},
	hairpin:               {"hairpin", []field{fieldPeer, fieldAddr, fieldProto, fieldPort}, noData, 0},
	clusterIPs:            {"cluster-ips", []field{fieldAddr}, noData, 0},
	nodePortAddrs:         {"nodeport-addresses", []field{fieldAddr}, noData, 0},
	loopbackAddrs:         {"loopback-addresses", []field{fieldAddr}, noData, 0},
	classes:               {"classes", []field{fieldClass}, verdictData, 0},
}

// endpointSet gives the map of the endpoints of a frontend. There is one for each protocol because nft
// 1.0.6, when it gets a map with "th dport" from the kernel, refuses it in a rule ("conflicting protocols
// specified: tcp vs. th"); with "tcp dport" it does not.
func endpointSet(p plan.Protocol, nodePort bool) setID {
	set := endpointsTCP
	switch p {
	case plan.UDP:
		set = endpointsUDP
	case plan.SCTP:
		set = endpointsSCTP
	}
	if nodePort {
		set += nodePortEndpointsTCP - endpointsTCP
	}
	return set
}

// has reports whether the key has the field.
func (s *setSpec) has(f field) bool {
	for _, k := range s.key {
		if k == f {
			return true
		}
	}
	return false
}

// element is the key of one element of one fixed set; it is comparable. Only the fields in the
// set's specification are used, the others are zero.
type element struct {
	family   plan.Family
	set      setID
	proto    plan.Protocol
	peerBits uint8
	port     uint16
	peerPort uint16
	slot     uint32
	class    classID
	addr     netip.Addr
	peer     netip.Addr
}

// value is what a map element leads to: a chain (by goto), a class or an endpoint.
type value struct {
	chain    string
	class    classID
	endpoint netip.AddrPort
}

// entry is an element with its value.
type entry struct {
	element
	value
}

// appendKey adds the key in nft's syntax. Everything is printed from parsed values.
func (e *element) appendKey(b []byte) []byte {
	for i, f := range specs[e.set].key {
		if i > 0 {
			b = append(b, " . "...)
		}
		switch f {
		case fieldAddr:
			b = appendAddr(b, e.addr)
		case fieldProto:
			b = append(b, protoName(e.proto)...)
		case fieldPort:
			b = strconv.AppendUint(b, uint64(e.port), 10)
		case fieldSlot:
			b = strconv.AppendUint(b, uint64(e.slot), 10)
		case fieldPeer:
			b = appendAddr(b, e.peer)
		case fieldPeerPort:
			b = strconv.AppendUint(b, uint64(e.peerPort), 10)
		case fieldPeerPrefix:
			b = appendAddr(b, e.peer)
			b = append(b, '/')
			b = strconv.AppendUint(b, uint64(e.peerBits), 10)
		case fieldClass:
			b = e.class.append(b)
		}
	}
	return b
}

// appendValue adds the value in nft's syntax; nothing for an element of a set.
func (v *value) appendValue(b []byte) []byte {
	switch {
	case v.chain != "":
		b = append(b, "goto "...)
		b = append(b, v.chain...)
	case v.class != 0:
		b = v.class.append(b)
	case v.endpoint.IsValid():
		b = appendAddr(b, v.endpoint.Addr())
		b = append(b, " . "...)
		b = strconv.AppendUint(b, uint64(v.endpoint.Port()), 10)
	}
	return b
}

// appendAddr leaves out a zone: a rule has no use for it, and it is free text.
func appendAddr(b []byte, a netip.Addr) []byte {
	return a.WithZone("").AppendTo(b)
}

func protoName(p plan.Protocol) string {
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
