package nfttable

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// listElement is the attribute type of an element in a list (NFTA_LIST_ELEM).
const listElement = 1

// setChange is a list of elements to add to, or delete from, one set.
type setChange struct {
	set    *Set
	list   []Entry
	remove bool
}

// resetBatch empties a batch and, if the batch was larger than 1 MiB, also frees its buffer.
func resetBatch(w *netlink.Batch) {
	if w.Size() > 1<<20 {
		*w = netlink.Batch{}
	}
	w.Reset()
}

func writeElements(w *netlink.Batch, table string, s setChange) {
	kind, flags := uint16(unix.NFT_MSG_NEWSETELEM), uint16(unix.NLM_F_CREATE)
	if s.remove {
		kind, flags = unix.NFT_MSG_DELSETELEM, 0
	}
	for rest := s.list; len(rest) > 0; {
		n := 0
		w.Add(kind, flags, netlink.Family(rest[0].Family), func(b []byte) []byte {
			b, n = s.set.appendElements(b, table, rest, !s.remove)
			return b
		})
		rest = rest[n:]
	}
}

// appendElements appends the attributes of a message about elements of one set. The message contains the first n
// elements of list, where n is the number of elements that fit into one attribute.
func (s *Set) appendElements(b []byte, table string, list []Entry, values bool) (longer []byte, n int) {
	b = netlink.AppendAttr(b, unix.NFTA_SET_ELEM_LIST_TABLE, table)
	b = netlink.AppendAttr(b, unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	b, all := netlink.Begin(b, netlink.Nested|unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for n < len(list) {
		before := len(b)
		if b = s.appendElement(b, &list[n], values); len(b)-all > netlink.MaxAttr {
			b = b[:before]
			break
		}
		n++
	}
	netlink.End(b, all)
	return b, n
}

func (s *Set) appendElement(b []byte, e *Entry, values bool) []byte {
	b, element := netlink.Begin(b, netlink.Nested|listElement)
	b = s.appendRawKey(b, unix.NFTA_SET_ELEM_KEY, &e.Element, false)
	if s.has(PeerPrefix) {
		b = s.appendRawKey(b, attrKeyEnd, &e.Element, true)
	}
	if values && s.Data != NoData {
		b = e.appendRaw(b, s.Data)
	}
	if values && e.comment != "" {
		b = netlink.AppendAttr(b, unix.NFTA_SET_ELEM_USERDATA, string(e.comment))
	}
	netlink.End(b, element)
	return b
}

// appendRawKey appends a key, or the last key of a range if last is set.
func (s *Set) appendRawKey(b []byte, attr uint16, e *Element, last bool) []byte {
	b, key := netlink.Begin(b, netlink.Nested|attr)
	b, value := netlink.Begin(b, unix.NFTA_DATA_VALUE)
	for _, k := range s.Key {
		switch k {
		case Addr:
			b = appendRawAddr(b, e.Family, e.Addr)
		case Peer:
			b = appendRawAddr(b, e.Family, e.Peer)
		case PeerPrefix:
			b = appendRawAddr(b, e.Family, e.Peer)
			maskTail(b[len(b)-addrSize(e.Family):], int(e.PeerBits), last)
		case Proto:
			b = append(b, byte(e.Proto), 0, 0, 0)
		case Port:
			b = append(binary.BigEndian.AppendUint16(b, e.Port), 0, 0)
		case PeerPort:
			b = append(binary.BigEndian.AppendUint16(b, e.PeerPort), 0, 0)
		case Slot:
			b = binary.NativeEndian.AppendUint32(b, e.Slot)
		case Number:
			b = binary.NativeEndian.AppendUint32(b, uint32(e.Number))
		}
	}
	netlink.End(b, value)
	netlink.End(b, key)
	return b
}

// maskTail keeps a prefix of the given length, and sets all other bits of b to 0, or to 1 if ones is set.
func maskTail(b []byte, bits int, ones bool) {
	for i := range b {
		mask := byte(0xff >> min(max(bits-8*i, 0), 8))
		if ones {
			b[i] |= mask
		} else {
			b[i] &^= mask
		}
	}
}

// appendRaw appends a value in the kernel's format, which setValue decodes.
func (v *Value) appendRaw(b []byte, d Data) []byte {
	b, data := netlink.Begin(b, netlink.Nested|unix.NFTA_SET_ELEM_DATA)
	var inner int
	switch d {
	case ToChain:
		b, inner = netlink.Begin(b, netlink.Nested|unix.NFTA_DATA_VERDICT)
		b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, 1<<32+unix.NFT_GOTO) // NFT_GOTO is negative
		b = netlink.AppendAttr(b, unix.NFTA_VERDICT_CHAIN, v.Chain)
	case ToNumber:
		b, inner = netlink.Begin(b, unix.NFTA_DATA_VALUE)
		b = binary.NativeEndian.AppendUint32(b, uint32(v.Number))
	case ToEndpoint:
		b, inner = netlink.Begin(b, unix.NFTA_DATA_VALUE)
		b = appendRawAddr(b, plan.FamilyOf(v.Endpoint.Addr()), v.Endpoint.Addr())
		b = append(binary.BigEndian.AppendUint16(b, v.Endpoint.Port()), 0, 0)
	}
	netlink.End(b, inner)
	netlink.End(b, data)
	return b
}

func appendRawAddr(b []byte, f plan.Family, a netip.Addr) []byte {
	if f == plan.IPv4 {
		four := a.As4()
		return append(b, four[:]...)
	}
	sixteen := a.As16()
	return append(b, sixteen[:]...)
}
