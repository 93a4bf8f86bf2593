package nfttable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// bigSet is the number of elements above which a set is not read as a whole, if that can be avoided. For each datagram
// of a list of elements the kernel (6.18) walks over all that it has told before: 158,000 take 1.5 s, 315,000 5 s and
// 525,000 26 s. To ask for each by its key takes the same time for each.
const bigSet = 100_000

// perRequest is the number of elements that are asked for at once. The answers, one message for each, must fit into
// the buffer that a socket has by default.
const perRequest = 100

// attrSetCount is an attribute of the kernel's nf_tables.h that golang.org/x/sys/unix lacks: the number of elements
// of a set (Linux 6.16).
const attrSetCount = 20

// count gives the number of elements of a set; known false: the kernel does not tell.
func (c *reader) count(f plan.Family, table, set string) (n int, known bool, err error) {
	attrs := nfnetlink.AppendAttr(nfnetlink.AppendAttr(nil, unix.NFTA_SET_TABLE, table), unix.NFTA_SET_NAME, set)
	err = c.Get(unix.NFT_MSG_GETSET, nfnetlink.Family(f), attrs, func(m nfnetlink.Message) error {
		attr := nfnetlink.Attr(m.Attrs, attrSetCount)
		n, known = int(nfnetlink.Uint32(attr)), attr != nil
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return 0, true, nil
	}
	return n, known, err
}

// verifier asks the kernel for elements by their keys.
type verifier struct {
	r     *renderer
	c     *reader
	names map[string]string
	// pending are those to ask for, by family and set; nil where that is not done.
	pending [2][][]Entry
	// wrong are the sets that lack one, or have it with another value.
	wrong [2][]bool
	buf   []byte
}

func newVerifier(r *renderer, c *reader, names map[string]string) *verifier {
	v := &verifier{r: r, c: c, names: names}
	for f := range v.pending {
		v.pending[f], v.wrong[f] = make([][]Entry, len(r.Sets)), make([]bool, len(r.Sets))
	}
	return v
}

// counted compares the number of elements of a set with what is wanted, if the set is too big to be read and the kernel
// tells. Where it is equal, verify asks for each element.
func (v *verifier) counted(f plan.Family, id SetID, want int) (counted, equal bool, err error) {
	set := &v.r.Sets[id]
	if want <= v.r.big || set.has(PeerPrefix) {
		return false, false, nil
	}
	have, known, err := v.c.count(f, v.r.Table, set.Name)
	if err != nil || !known {
		return false, false, err
	}
	if have == want {
		v.pending[familyIndex(f)][id] = make([]Entry, 0, perRequest)
	}
	return true, have == want, nil
}

// add takes an entry that the set should have.
func (v *verifier) add(e *Entry) error {
	list := &v.pending[familyIndex(e.Family)][e.Set]
	if *list == nil || v.wrong[familyIndex(e.Family)][e.Set] {
		return nil
	}
	if *list = append(*list, *e); len(*list) < perRequest {
		return nil
	}
	return v.ask(e.Family, e.Set)
}

// ask asks for what is pending of a set.
func (v *verifier) ask(f plan.Family, id SetID) error {
	pending := &v.pending[familyIndex(f)][id]
	if len(*pending) == 0 {
		return nil
	}
	set := &v.r.Sets[id]
	found := 0
	err := v.c.Get(unix.NFT_MSG_GETSETELEM, nfnetlink.Family(f), v.request(f, set, *pending), func(m nfnetlink.Message) error {
		return eachElement(m, func(raw rawElement) error {
			if e, err := set.decode(f, id, raw, v.names); err == nil && found < len(*pending) && e == (*pending)[found] {
				found++
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("read elements of %s by key: %w", set.Name, err)
	}
	v.wrong[familyIndex(f)][id] = v.wrong[familyIndex(f)][id] || found < len(*pending)
	*pending = (*pending)[:0]
	return nil
}

// verify asks for all entries of the plan in the sets that were counted, and marks those that differ.
func (v *verifier) verify(refs *references, next *plan.Plan, differing contents) (err error) {
	counted := func(list []Entry) bool { return list != nil }
	if !slices.ContainsFunc(v.pending[0], counted) && !slices.ContainsFunc(v.pending[1], counted) {
		return nil
	}
	v.r.each(refs, next, func(list []Entry) {
		for i := range list {
			if err == nil {
				err = v.add(&list[i])
			}
		}
	})
	for _, f := range v.r.families {
		for set := range v.r.Sets {
			if err == nil {
				err = v.ask(f, SetID(set))
			}
			differing.mark(SetID(set), v.wrong[familyIndex(f)][set])
		}
	}
	return err
}

// request names the elements by their keys.
func (v *verifier) request(f plan.Family, set *Set, list []Entry) []byte {
	const listElement, nested = 1, 1 << 15
	b := nfnetlink.AppendAttr(v.buf[:0], unix.NFTA_SET_ELEM_LIST_TABLE, v.r.Table)
	b = nfnetlink.AppendAttr(b, unix.NFTA_SET_ELEM_LIST_SET, set.Name)
	b, all := nfnetlink.Begin(b, nested|unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range list {
		var element, key, value int
		b, element = nfnetlink.Begin(b, nested|listElement)
		b, key = nfnetlink.Begin(b, nested|unix.NFTA_SET_ELEM_KEY)
		b, value = nfnetlink.Begin(b, unix.NFTA_DATA_VALUE)
		b = set.appendRaw(b, f, &list[i].Element)
		for _, start := range []int{value, key, element} {
			nfnetlink.End(b, start)
		}
	}
	nfnetlink.End(b, all)
	v.buf = b
	return b
}

// appendRaw adds the key of an element as the kernel has it, see setField.
func (s *Set) appendRaw(b []byte, f plan.Family, e *Element) []byte {
	for _, k := range s.Key {
		switch k {
		case Addr:
			b = appendRawAddr(b, f, e.Addr)
		case Peer, PeerPrefix:
			b = appendRawAddr(b, f, e.Peer)
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
