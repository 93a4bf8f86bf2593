package floor

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"edgeway/test/e2e/cluster"
)

// element is an element of the nftables map, in the kernel's format. The key is a Service address followed by a random
// number in host byte order. The data is an endpoint's address and port in network byte order, padded to 8 bytes.
type element struct{ key, data [8]byte }

func newElement(service netip.Addr, number int, endpoint string) (e element) {
	ip, target := service.As4(), netip.MustParseAddr(endpoint).As4()
	copy(e.key[:], ip[:])
	binary.NativeEndian.PutUint32(e.key[4:], uint32(number))
	copy(e.data[:], target[:])
	binary.BigEndian.PutUint16(e.data[4:], cluster.EndpointPort)
	return e
}

type table struct {
	conn *nftables.Conn
	set  *nftables.Set
}

func openTable() (*table, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("netfilter socket: %w", err)
	}
	of := &nftables.Table{Name: "floor", Family: nftables.TableFamilyIPv4}
	return &table{conn, &nftables.Set{Table: of, Name: "endpoints", IsMap: true}}, nil
}

func (t *table) close() { _ = t.conn.CloseLasting() }

// maxElements is the maximum number of elements in a transaction. All elements of a transaction are in one netlink
// attribute, which can hold at most 64 KiB.
const maxElements = 1000

// commit removes the elements listed in gone from the map, and adds the elements listed in come. Only the initial list
// of elements needs more than one transaction.
func (t *table) commit(gone, come []element) error {
	if len(gone) > 0 {
		if err := t.conn.SetDeleteElements(t.set, keys(gone)); err != nil {
			return fmt.Errorf("elements: %w", err)
		}
	}
	for some := range slices.Chunk(come, maxElements) {
		values := keys(some)
		for i := range values {
			values[i].Val = some[i].data[:]
		}
		if err := t.conn.SetAddElements(t.set, values); err != nil {
			return fmt.Errorf("elements: %w", err)
		}
		if err := t.conn.Flush(); err != nil {
			return fmt.Errorf("transaction: %w", err)
		}
	}
	if err := t.conn.Flush(); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	return nil
}

func keys(elements []element) []nftables.SetElement {
	all := make([]nftables.SetElement, len(elements))
	for i := range elements {
		all[i].Key = elements[i].key[:]
	}
	return all
}
