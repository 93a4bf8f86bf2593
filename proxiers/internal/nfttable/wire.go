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

// wire is a batch of elements in the kernel's format.
type wire struct {
	netlink.Batch
	// spans holds the elements of each message.
	spans []span
}

// span is a list of elements to add to one set, or to delete from the set.
type span struct {
	set    *Set
	list   []Entry
	remove bool
}

// reset keeps the buffer unless the buffer is larger than 1 MiB.
func (w *wire) reset() {
	if w.Size() > 1<<20 {
		*w = wire{}
		return
	}
	w.Reset()
	clear(w.spans) // otherwise the spans would keep the lists in memory
	w.spans = w.spans[:0]
}

// The caller of write must not change s.list afterwards, because refused reads s.list if the kernel rejects an element.
func (w *wire) write(table string, s span) {
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
		w.spans = append(w.spans, span{s.set, rest[:n], s.remove})
		rest = rest[n:]
	}
}

// refused returns the rejected element and its set, or a nil set if the kernel does not identify the element.
func (w *wire) refused(r *netlink.Refused) (set *Set, e Entry) {
	if r.Message < 0 || r.Message >= len(w.spans) || r.Offset == 0 {
		return nil, Entry{}
	}
	s := w.spans[r.Message]
	i := elementAt(w.Message(r.Message), r.Offset)
	if i < 0 || i >= len(s.list) {
		return nil, Entry{}
	}
	return s.set, s.list[i]
}

// elementAt returns the index of the element at an offset in a message, or -1 if no element is at the offset.
// wire.write must have created the message, which consists of headers, the names of the table and of the set, and the
// list.
func elementAt(message []byte, offset int) (i int) {
	size := func(at int) int {
		if at+4 > len(message) {
			return 0
		}
		return int(binary.NativeEndian.Uint16(message[at:]))
	}
	at := unix.NLMSG_HDRLEN + 4
	for range 2 {
		at += (size(at) + 3) &^ 3
	}
	for at += 4; size(at) >= 4; at += (size(at) + 3) &^ 3 {
		if offset >= at && offset < at+size(at) {
			return i
		}
		i++
	}
	return -1
}

// appendElements appends the attributes of a message about elements of one set. The message contains as many elements
// of list as fit into an attribute, and n is their number.
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

// maskTail sets all bits of b except a prefix of the given length to 0, or to 1 if ones is set.
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
