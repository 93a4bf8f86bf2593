package nfttable

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// maxReads is the maximum number of times that reread reads a set.
const maxReads = 10

// attrSetCount is the attribute for the number of elements in a set (since Linux 6.16). golang.org/x/sys/unix does not
// define this attribute.
const attrSetCount = 20

// reread rereads a set whose first dump did not match the plan, and returns the set's elements. before is the checksum
// of the first dump. reread repeats the read until the kernel's element count or an identical dump confirms the result.
// After a transaction, the kernel (6.18) may move a set to a hash table of another size. During the move, a dump that
// spans several datagrams repeats some elements and silently omits as many others. (A dump that equals the plan is
// always complete.)
func (r *renderer) reread(
	c *reader, s *checksummer, f plan.Family, id SetID, before checksum,
) (map[Element]Value, error) {
	set := &r.Sets[id]
	for range maxReads {
		found, sum := map[Element]Value{}, checksum{}
		err := r.read(c, f, id, s.names, func(e *Entry) {
			if _, repeated := found[e.Element]; !repeated {
				s.addTo(&sum, e)
			}
			found[e.Element] = e.Value
		})
		if err != nil {
			return nil, err
		}
		if n, known, err := c.count(f, r.Table, set.Name); err != nil || sum == before || known && n == sum.count {
			return found, err
		}
		before = sum
	}
	return nil, fmt.Errorf("elements of %s: %d consecutive dumps differed", set.Name, maxReads)
}

// count returns the number of elements in a set. known is false if the kernel does not report the number.
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
