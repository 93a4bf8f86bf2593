package floor

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/test/e2e/cluster"
)

// element leads those connections to a Service that draw its number to an endpoint, as the kernel has it: an address and
// a number of the host's byte order, to an address and a port of the network's, each padded to four bytes.
type element struct{ key, data [8]byte }

func newElement(service netip.Addr, number int, endpoint string) (e element) {
	ip, target := service.As4(), netip.MustParseAddr(endpoint).As4()
	copy(e.key[:], ip[:])
	binary.NativeEndian.PutUint32(e.key[4:], uint32(number))
	copy(e.data[:], target[:])
	binary.BigEndian.PutUint16(e.data[4:], cluster.EndpointPort)
	return e
}

// table writes to the table of the ruleset on one socket.
type table struct{ conn *netlink.Conn }

func openTable() (*table, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("netfilter socket: %w", err)
	}
	return &table{conn}, nil
}

func (t *table) close() { _ = t.conn.Close() }

// perBatch bounds a transaction so that it fits the socket as it is, and its elements one attribute of 64 KiB.
const perBatch = 1000

// commit removes elements and adds others: in one transaction, but for the many of the start.
func (t *table) commit(gone, come []element) error {
	if len(gone) > 0 || len(come) == 0 {
		return t.transaction(gone, come)
	}
	for some := range slices.Chunk(come, perBatch) {
		if err := t.transaction(nil, some); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) transaction(gone, come []element) error {
	batch := []netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}
	for _, part := range []struct {
		kind     int
		flags    netlink.HeaderFlags
		elements []element
	}{{unix.NFT_MSG_DELSETELEM, 0, gone}, {unix.NFT_MSG_NEWSETELEM, netlink.Create, come}} {
		if len(part.elements) == 0 {
			continue
		}
		data, err := encode(part.elements, part.kind == unix.NFT_MSG_NEWSETELEM)
		if err != nil {
			return fmt.Errorf("elements: %w", err)
		}
		batch = append(batch, netlink.Message{
			Header: netlink.Header{
				Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | part.kind),
				Flags: netlink.Request | part.flags,
			},
			Data: append(head(unix.AF_INET, 0), data...),
		})
	}
	if len(batch) == 1 {
		return nil
	}
	// What the kernel refuses it says in any case; one answer says that it refused nothing.
	batch[len(batch)-1].Header.Flags |= netlink.Acknowledge
	if _, err := t.conn.SendMessages(append(batch, edge(unix.NFNL_MSG_BATCH_END))); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	if _, err := t.conn.Receive(); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	return nil
}

// edge is the first or the last message of a transaction.
func edge(kind int) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request},
		Data:   head(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES),
	}
}

// head is struct nfgenmsg: a family, version 0 and a resource.
func head(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

// encode gives the attributes of a message about elements: whole ones, or their keys alone.
func encode(elements []element, whole bool) ([]byte, error) {
	all := netlink.NewAttributeEncoder()
	all.String(unix.NFTA_SET_ELEM_LIST_TABLE, "floor")
	all.String(unix.NFTA_SET_ELEM_LIST_SET, "endpoints")
	all.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list *netlink.AttributeEncoder) error {
		for _, e := range elements {
			list.Nested(unix.NFTA_LIST_ELEM, func(one *netlink.AttributeEncoder) error {
				value(one, unix.NFTA_SET_ELEM_KEY, e.key[:])
				if whole {
					value(one, unix.NFTA_SET_ELEM_DATA, e.data[:])
				}
				return nil
			})
		}
		return nil
	})
	return all.Encode()
}

func value(to *netlink.AttributeEncoder, kind uint16, bytes []byte) {
	to.Nested(kind, func(data *netlink.AttributeEncoder) error {
		data.Bytes(unix.NFTA_DATA_VALUE, bytes)
		return nil
	})
}
