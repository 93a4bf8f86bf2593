package netlink

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"

	"edgeway/proxiers/plan"
)

// The kernel defines these ctnetlink attributes in linux/netfilter/nfnetlink_conntrack.h, but golang.org/x/sys v0.49
// does not define them.
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25
	ctaStatusMask = 26

	ctaCountersOrig    = 9
	ctaCountersReply   = 10
	ctaCountersPackets = 1
	ctaCountersBytes   = 2

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaFilterOrigFlags = 1
)

// The kernel can filter a dump by the following tuple fields (net/netfilter/nf_internals.h).
const (
	filterIPDst        = 1 << 1
	filterProtoNum     = 1 << 3
	filterProtoDstPort = 1 << 5
)

// The kernel defines the status bits of a flow in linux/netfilter/nf_conntrack_common.h.
const (
	statusSeenReply = 1 << 1
	statusDstNAT    = 1 << 5
	statusOffload   = 1 << 14
)

// Flow is an entry in the connection-tracking table.
type Flow struct {
	// Orig holds the addresses of the first packet before translation. Reply holds the addresses of a reply packet
	// before translation.
	Orig, Reply Tuple
	Protocol    plan.Protocol
	ID          uint32
	Zone        uint16
	Status      uint32
	// Packets and Bytes count the traffic in both directions, and are zero if the kernel does not count traffic.
	Packets, Bytes uint64
}

// HasReply reports whether the kernel has seen packets in both directions.
func (f *Flow) HasReply() bool { return f.Status&statusSeenReply != 0 }

// Tuple holds the addresses for one direction of a flow.
type Tuple struct{ Src, Dst netip.AddrPort }

// decodeFlow decodes a flow. If the message lacks an attribute, the corresponding field stays invalid and the flow
// matches no frontend.
func decodeFlow(data []byte) *Flow {
	f := &Flow{}
	for kind, value := range EachAttr(data) {
		switch kind {
		case ctaTupleOrig:
			f.Orig, f.Protocol = decodeTuple(value)
		case ctaTupleReply:
			f.Reply, _ = decodeTuple(value)
		case ctaStatus:
			f.Status = uint32(number(value, 4))
		case ctaID:
			f.ID = uint32(number(value, 4))
		case ctaZone:
			f.Zone = uint16(number(value, 2))
		case ctaCountersOrig, ctaCountersReply:
			f.count(value)
		}
	}
	return f
}

func decodeTuple(data []byte) (t Tuple, protocol plan.Protocol) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	for part, nested := range EachAttr(data) {
		switch part {
		case ctaTupleIP:
			src, dst = decodeAddrs(nested)
		case ctaTupleProto:
			protocol, srcPort, dstPort = decodeProto(nested)
		}
	}
	return Tuple{netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)}, protocol
}

func decodeAddrs(data []byte) (src, dst netip.Addr) {
	for kind, value := range EachAttr(data) {
		switch kind {
		case ctaIPv4Src, ctaIPv6Src:
			src, _ = netip.AddrFromSlice(value)
		case ctaIPv4Dst, ctaIPv6Dst:
			dst, _ = netip.AddrFromSlice(value)
		}
	}
	return src, dst
}

func decodeProto(data []byte) (protocol plan.Protocol, src, dst uint16) {
	for kind, value := range EachAttr(data) {
		switch kind {
		case ctaProtoNum:
			protocol = plan.Protocol(number(value, 1))
		case ctaProtoSrcPort:
			src = uint16(number(value, 2))
		case ctaProtoDstPort:
			dst = uint16(number(value, 2))
		}
	}
	return protocol, src, dst
}

func (f *Flow) count(data []byte) {
	for kind, value := range EachAttr(data) {
		switch kind {
		case ctaCountersPackets:
			f.Packets += number(value, 8)
		case ctaCountersBytes:
			f.Bytes += number(value, 8)
		}
	}
}

// number returns the size-byte integer at the start of value, or 0 if value is shorter.
func number(value []byte, size int) (n uint64) {
	if len(value) < size {
		return 0
	}
	for _, b := range value[:size] {
		n = n<<8 | uint64(b)
	}
	return n
}

// encodeDelete encodes the attributes that identify a flow. The ID distinguishes the flow from a later flow with the
// same tuple.
func (f *Flow) encodeDelete(s Scope) ([]byte, error) {
	ae := encoder()
	ae.Nested(ctaTupleOrig, func(ae *netlink.AttributeEncoder) error { return f.Orig.encode(ae, s) })
	ae.Uint32(ctaID, f.ID)
	return ae.Encode()
}

// encodeFilter encodes a filter for one protocol and, if dst is valid, for one destination. Not all kernels support the
// filter, so the code that reads the dump must still compare each flow's destination with dst. Kernels before 5.8
// ignore the filter attribute and dump the whole family. For TCP, a kernel that can filter by status also omits flows
// that have seen a reply or have a translated destination.
func encodeFilter(s Scope, dst netip.AddrPort) ([]byte, error) {
	flags := uint32(filterProtoNum)
	switch {
	case dst.IsValid() && s.Family == plan.IPv4:
		flags |= filterIPDst | filterProtoDstPort
	case dst.IsValid():
		// On Linux 6.18, a filter by IPv6 address returns every flow except the flows to that address. The function
		// ctnetlink_filter_match_tuple interprets the result 0 from ipv6_addr_cmp as "different". Filtering by port
		// works correctly.
		flags |= filterProtoDstPort
	default:
		dst = netip.AddrPortFrom(unspecified(s), 0)
	}
	ae := encoder()
	t := Tuple{Src: netip.AddrPortFrom(unspecified(s), 0), Dst: dst}
	ae.Nested(ctaTupleOrig, func(ae *netlink.AttributeEncoder) error { return t.encode(ae, s) })
	ae.Nested(ctaFilter, func(ae *netlink.AttributeEncoder) error {
		// ctaFilterOrigFlags is the only ctnetlink attribute in host byte order.
		ae.ByteOrder = binary.NativeEndian
		ae.Uint32(ctaFilterOrigFlags, flags)
		return nil
	})
	if s.Protocol == plan.TCP {
		ae.Uint32(ctaStatus, 0)
		ae.Uint32(ctaStatusMask, statusSeenReply|statusDstNAT)
	}
	return ae.Encode()
}

// encodeOffloaded encodes a filter for offloaded flows. Not all kernels support the filter.
func encodeOffloaded() ([]byte, error) {
	ae := encoder()
	ae.Uint32(ctaStatus, statusOffload)
	ae.Uint32(ctaStatusMask, statusOffload)
	return ae.Encode()
}

func encoder() *netlink.AttributeEncoder {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	return ae
}

func (t *Tuple) encode(ae *netlink.AttributeEncoder, s Scope) error {
	srcType, dstType := uint16(ctaIPv6Src), uint16(ctaIPv6Dst)
	if s.Family == plan.IPv4 {
		srcType, dstType = ctaIPv4Src, ctaIPv4Dst
	}
	ae.Nested(ctaTupleIP, func(ae *netlink.AttributeEncoder) error {
		ae.Bytes(srcType, t.Src.Addr().AsSlice())
		ae.Bytes(dstType, t.Dst.Addr().AsSlice())
		return nil
	})
	ae.Nested(ctaTupleProto, func(ae *netlink.AttributeEncoder) error {
		ae.Uint8(ctaProtoNum, uint8(s.Protocol))
		ae.Uint16(ctaProtoSrcPort, t.Src.Port())
		ae.Uint16(ctaProtoDstPort, t.Dst.Port())
		return nil
	})
	return nil
}
