package nfttable

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
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
	attrs := netlink.AppendAttr(netlink.AppendAttr(nil, unix.NFTA_SET_TABLE, table), unix.NFTA_SET_NAME, set)
	err = c.Get(unix.NFT_MSG_GETSET, netlink.Family(f), attrs, func(m netlink.Message) error {
		attr := netlink.Attr(m.Attrs, attrSetCount)
		n, known = int(netlink.Uint32(attr)), attr != nil
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
	err := v.c.Get(unix.NFT_MSG_GETSETELEM, netlink.Family(f), v.request(set, *pending), func(m netlink.Message) error {
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

// readings is how often a set is read that has other elements each time.
const readings = 10

// settled gives what a set holds: as many elements as the kernel counts, or what two readings agree on, of which before is
// the first. While the kernel (6.18) moves a set to a hash table of another size, which it begins after a transaction has
// returned, a list of several datagrams repeats some elements and lacks as many, and has no mark of it. (A list that is equal
// to what is wanted is right in any case.)
func (v *verifier) settled(s *summer, f plan.Family, id SetID, before checksum) (map[Element]Value, error) {
	set := &v.r.Sets[id]
	for range readings {
		found, now := map[Element]Value{}, checksum{}
		err := v.r.read(v.c, f, id, v.names, func(e *Entry) {
			if _, again := found[e.Element]; !again {
				s.addTo(&now, e)
			}
			found[e.Element] = e.Value
		})
		if err != nil {
			return nil, err
		}
		if n, known, err := v.c.count(f, v.r.Table, set.Name); err != nil || now == before || known && n == now.count {
			return found, err
		}
		before = now
	}
	return nil, fmt.Errorf("elements of %s: other ones each time that they are read", set.Name)
}

// request names the elements by their keys. They fit into one message.
func (v *verifier) request(set *Set, list []Entry) []byte {
	v.buf, _ = set.appendElements(v.buf[:0], v.r.Table, list, false)
	return v.buf
}
