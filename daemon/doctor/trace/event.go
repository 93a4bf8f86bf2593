package trace

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/daemon/doctor/nft"
)

// event is a kernel message about a packet that matched a rule or reached the end of a base chain.
type event struct {
	packet               uint32 // packet is the kernel's ID of the packet
	family, table, chain string
	handle               uint64 // handle is 0 for the end or the policy of the chain
	dropped              bool
	destination          netip.AddrPort // destination is invalid if an earlier event contains the address
}

const (
	nfDrop      = 0
	verdictCode = unix.NFTA_VERDICT_CODE
)

// parse decodes a kernel message, which consists of a struct nfgenmsg and attributes.
func parse(m netlink.Message) (e event, ok bool) {
	if uint16(m.Header.Type) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE || len(m.Data) < 4 {
		return e, false
	}
	e.family = nft.Family(m.Data[0])
	attrs, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return e, false
	}
	attrs.ByteOrder = binary.BigEndian
	for attrs.Next() {
		e.take(attrs)
	}
	return e, attrs.Err() == nil && e.family != "" && e.table != "" && e.chain != ""
}

func (e *event) take(attrs *netlink.AttributeDecoder) {
	switch attrs.Type() {
	case unix.NFTA_TRACE_ID:
		e.packet = attrs.Uint32()
	case unix.NFTA_TRACE_TABLE:
		e.table = attrs.String()
	case unix.NFTA_TRACE_CHAIN:
		e.chain = attrs.String()
	case unix.NFTA_TRACE_RULE_HANDLE:
		e.handle = attrs.Uint64()
	case unix.NFTA_TRACE_NETWORK_HEADER:
		e.destination = netip.AddrPortFrom(destination(attrs.Bytes()), e.destination.Port())
	case unix.NFTA_TRACE_TRANSPORT_HEADER:
		if ports := attrs.Bytes(); len(ports) >= 4 {
			e.destination = netip.AddrPortFrom(e.destination.Addr(), binary.BigEndian.Uint16(ports[2:]))
		}
	case unix.NFTA_TRACE_POLICY:
		e.dropped = attrs.Uint32() == nfDrop
	case unix.NFTA_TRACE_VERDICT:
		attrs.Nested(func(verdict *netlink.AttributeDecoder) error {
			verdict.ByteOrder = binary.BigEndian
			for verdict.Next() {
				if verdict.Type() == verdictCode {
					e.dropped = verdict.Uint32() == nfDrop
				}
			}
			return nil
		})
	}
}

// destination returns the destination address in an IPv4 header (RFC 791) or IPv6 header (RFC 8200).
func destination(header []byte) netip.Addr {
	at, end := 16, 20
	if len(header) > 0 && header[0]>>4 == 6 {
		at, end = 24, 40
	}
	a, _ := netip.AddrFromSlice(header[min(at, len(header)):min(end, len(header))]) // a is invalid for a short header
	return a
}

// findDrop finds the first drop among the packets that matched a rule in the trace table. All other packets belong to
// other programs' traces. The kernel reuses packet IDs, and assigns a new ID when a packet passes through the loopback
// interface.
func findDrop(events []event) (v Verdict) {
	replies, to := map[uint32]bool{}, map[uint32]netip.AddrPort{}
	for _, e := range events {
		if e.destination.IsValid() {
			to[e.packet] = e.destination
		}
		reply, ours := replies[e.packet]
		switch {
		case e.table == tableName && e.handle != 0:
			reply = strings.HasPrefix(e.chain, replyPrefix)
			replies[e.packet] = reply
			v.Traced, v.LeftHost, v.Answered = true, v.LeftHost || e.chain == leavingChain, v.Answered || reply
			if !reply && !v.Dropped {
				v.Destination = to[e.packet]
			}
		case ours && e.dropped && !v.Dropped:
			v.Dropped, v.Reply, v.Destination = true, reply, to[e.packet]
			v.Family, v.Table, v.Chain, v.Handle = e.family, e.table, e.chain, e.handle
		}
	}
	return v
}
