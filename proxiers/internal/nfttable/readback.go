package nfttable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// attrKeyEnd is NFTA_SET_ELEM_KEY_END from the kernel's nf_tables.h. golang.org/x/sys/unix does not define this
// attribute.
const attrKeyEnd = 10

// reader reads the contents of Edgeway's tables.
type reader struct{ *netlink.Conn }

func dial() (*reader, error) {
	c, err := netlink.Dial()
	return &reader{c}, err
}

// tableFamilies returns the families that have a table with the given name.
func (c *reader) tableFamilies(name string) (found []uint8, err error) {
	err = c.EachTable(unix.NFPROTO_UNSPEC, func(family uint8, table string) {
		if table == name {
			found = append(found, family)
		}
	})
	return found, err
}

// objects returns the chains, sets and maps in a table, except anonymous sets, which belong to rules.
func (c *reader) objects(f plan.Family, table string) (found []ObjectID, err error) {
	filter := netlink.AppendAttr(nil, netlink.AttrTable, table)
	add := func(kind ObjectKind, m netlink.Message, name []byte) {
		// No kernel version filters a dump of chains by table.
		if string(netlink.Text(netlink.Attr(m.Attrs, netlink.AttrTable))) == table {
			found = append(found, ObjectID{f, kind, string(netlink.Text(name))})
		}
	}
	err = c.Dump(unix.NFT_MSG_GETCHAIN, netlink.Family(f), filter, func(m netlink.Message) error {
		add(ChainObject, m, netlink.Attr(m.Attrs, unix.NFTA_CHAIN_NAME))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read chains: %w", err)
	}
	err = c.Dump(unix.NFT_MSG_GETSET, netlink.Family(f), filter, func(m netlink.Message) error {
		flags := netlink.Uint32(netlink.Attr(m.Attrs, unix.NFTA_SET_FLAGS))
		kind := setObject
		if flags&unix.NFT_SET_MAP != 0 {
			kind = MapObject
		}
		if flags&unix.NFT_SET_ANONYMOUS == 0 {
			add(kind, m, netlink.Attr(m.Attrs, unix.NFTA_SET_NAME))
		}
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT means that the table does not exist
		return nil, fmt.Errorf("read sets: %w", err)
	}
	return found, nil
}

// rawElement is an element in the kernel's format. The slices are valid only until the visit function of dumpElements
// returns.
type rawElement struct {
	key, keyEnd, data, user []byte
	packets                 uint64 // the value of the element's counter
}

// dumpElements calls visit for each element of a set or map. A missing set is not an error.
func (c *reader) dumpElements(f plan.Family, table, set string, visit func(rawElement) error) error {
	filter := netlink.AppendAttr(netlink.AppendAttr(nil, unix.NFTA_SET_ELEM_LIST_TABLE, table),
		unix.NFTA_SET_ELEM_LIST_SET, set)
	err := c.Dump(unix.NFT_MSG_GETSETELEM, netlink.Family(f), filter, func(m netlink.Message) error {
		return eachElement(m, visit)
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("read elements of %s: %w", set, err)
	}
	return nil
}

func eachElement(m netlink.Message, visit func(rawElement) error) error {
	for t, list := range netlink.EachAttr(m.Attrs) {
		if t != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		for _, raw := range netlink.EachAttr(list) {
			if err := visit(parseRaw(raw)); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseRaw(b []byte) (e rawElement) {
	for t, v := range netlink.EachAttr(b) {
		switch t {
		case unix.NFTA_SET_ELEM_KEY:
			e.key = netlink.Attr(v, unix.NFTA_DATA_VALUE)
		case attrKeyEnd:
			e.keyEnd = netlink.Attr(v, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_DATA:
			e.data = v
		case unix.NFTA_SET_ELEM_USERDATA:
			e.user = v
		case unix.NFTA_SET_ELEM_EXPR:
			counter := netlink.Attr(v, unix.NFTA_EXPR_DATA)
			e.packets = netlink.Uint64(netlink.Attr(counter, unix.NFTA_COUNTER_PACKETS))
		}
	}
	return e
}

// errUnreadable means that an element does not have the form that Edgeway writes, because another version created the
// set or another program added the element.
var errUnreadable = errors.New("the element does not have the form that this version of Edgeway writes")

// decode returns the entry for an element of a fixed set, and interns chain names and comments in names, so that equal
// strings share memory.
func (s *Set) decode(f plan.Family, id SetID, raw rawElement, names map[string]string) (Entry, error) {
	e := Entry{Element: Element{Family: f, Set: id}}
	key, end := raw.key, raw.keyEnd
	for _, k := range s.Key {
		size := 4
		if k == Addr || k == Peer || k == PeerPrefix {
			size = addrSize(f)
		}
		if len(key) < size {
			return Entry{}, fmt.Errorf("%s: %w", s.Name, errUnreadable)
		}
		var last []byte
		if k == PeerPrefix && len(end) == len(key) {
			last = end[:size]
		}
		if !e.setField(k, key[:size], last) {
			return Entry{}, fmt.Errorf("%s: %w", s.Name, errUnreadable)
		}
		key = key[size:]
		if len(end) >= size {
			end = end[size:]
		}
	}
	if len(key) != 0 || !e.setValue(s.Data, raw.data, names) {
		return Entry{}, fmt.Errorf("%s: %w", s.Name, errUnreadable)
	}
	if s.Named {
		e.comment = comment(intern(names, netlink.Text(raw.user)))
	}
	return e, nil
}

// intern returns the string in names that equals text. If names contains no equal string, intern first adds text to
// names.
func intern(names map[string]string, text []byte) string {
	name, ok := names[string(text)]
	if !ok {
		name = string(text)
		names[name] = name
	}
	return name
}

// setField sets a field from bytes in the kernel's format. Addresses and ports are in network byte order, and slots and
// chain numbers are in host byte order. The kernel pads each field to 4 bytes.
func (e *Element) setField(k Field, b, last []byte) bool {
	switch k {
	case Addr:
		e.Addr, _ = netip.AddrFromSlice(b)
	case Peer:
		e.Peer, _ = netip.AddrFromSlice(b)
	case Proto:
		e.Proto = plan.Protocol(b[0])
	case Port:
		e.Port = binary.BigEndian.Uint16(b)
	case PeerPort:
		e.PeerPort = binary.BigEndian.Uint16(b)
	case Slot:
		e.Slot = binary.NativeEndian.Uint32(b)
	case Number:
		e.Number = ChainNumber(binary.NativeEndian.Uint32(b))
	case PeerPrefix:
		e.Peer, _ = netip.AddrFromSlice(b)
		bits, ok := prefixBits(b, last)
		e.PeerBits = uint8(bits)
		return ok
	}
	return true
}

func (v *Value) setValue(d Data, b []byte, names map[string]string) bool {
	switch d {
	case ToChain:
		verdict := netlink.Attr(b, unix.NFTA_DATA_VERDICT)
		name := netlink.Text(netlink.Attr(verdict, unix.NFTA_VERDICT_CHAIN))
		if int32(netlink.Uint32(netlink.Attr(verdict, unix.NFTA_VERDICT_CODE))) != unix.NFT_GOTO {
			name = []byte("?") // Edgeway did not write this chain, so it must differ from every wanted chain
		}
		v.Chain = intern(names, name)
	case ToNumber:
		raw := netlink.Attr(b, unix.NFTA_DATA_VALUE)
		if len(raw) != 4 {
			return false
		}
		v.Number = ChainNumber(binary.NativeEndian.Uint32(raw))
	case ToEndpoint:
		raw := netlink.Attr(b, unix.NFTA_DATA_VALUE)
		if len(raw) < 4+2 {
			return false
		}
		a, ok := netip.AddrFromSlice(raw[:len(raw)-4])
		v.Endpoint = netip.AddrPortFrom(a, binary.BigEndian.Uint16(raw[len(raw)-4:]))
		return ok
	}
	return true
}

// prefixBits returns the length of the prefix that consists of the addresses from first to last. If last is nil, first
// is a single address.
func prefixBits(first, last []byte) (bits int, ok bool) {
	if last == nil {
		return 8 * len(first), true
	}
	for bits = 0; bits < 8*len(first); bits++ {
		mask := byte(0x80 >> (bits % 8))
		if first[bits/8]&mask != last[bits/8]&mask {
			break
		}
	}
	for i := bits; i < 8*len(first); i++ {
		mask := byte(0x80 >> (i % 8))
		if first[i/8]&mask != 0 || last[i/8]&mask == 0 {
			return 0, false
		}
	}
	return bits, true
}

func addrSize(f plan.Family) int {
	if f == plan.IPv4 {
		return 4
	}
	return 16
}
