package nfttable

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// Counters returns each family's packet counts by counter name. A missing table has no counters. Any goroutine may call
// Counters.
func (t *Table) Counters() (map[plan.Family]map[string]uint64, error) {
	found := map[plan.Family]map[string]uint64{}
	for _, f := range t.families {
		packets := map[string]uint64{}
		filter := netlink.AppendAttr(nil, unix.NFTA_OBJ_TABLE, t.Table)
		err := t.kernel.Dump(unix.NFT_MSG_GETOBJ, netlink.Family(f), filter, func(m netlink.Message) error {
			name := netlink.Text(netlink.Attr(m.Attrs, unix.NFTA_OBJ_NAME))
			packets[string(name)] = netlink.Uint64(netlink.Attr(netlink.Attr(m.Attrs, unix.NFTA_OBJ_DATA),
				unix.NFTA_COUNTER_PACKETS))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read counters: %w", err)
		}
		found[f] = packets
	}
	return found, nil
}

// Counts returns the number of packets that matched each element of the sets whose Set.Counts is true. Any goroutine
// may call Counts.
func (t *Table) Counts() (map[Element]uint64, error) {
	found, names := map[Element]uint64{}, map[string]string{}
	for i := range t.Sets {
		set := &t.Sets[i]
		if !set.Counts {
			continue
		}
		for _, f := range t.families {
			err := t.kernel.dumpElements(f, t.Table, set.Name, func(raw rawElement) error {
				e, err := set.decode(f, 0, raw, names)
				found[e.Element] = raw.packets
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// ClientMap is an nft map from client addresses to other addresses. Rules in the packet path add the elements.
type ClientMap struct {
	Family plan.Family
	Name   string
	// ValidAddrs holds the addresses that are valid values in the map.
	ValidAddrs map[netip.Addr]bool
}

// pruneAttempts is the maximum number of attempts to delete clients. The whole deletion fails if any client's element
// expires between the read and the deletion.
const pruneAttempts = 5

// clientsPerDatagram is the number of clients that always fit into one datagram. A list that spans several datagrams
// may be incomplete, because during the read, the map may change, or the kernel may move it to another hash table (see
// reread). Prune therefore reads a list twice if it spans several datagrams.
const clientsPerDatagram = 40

// Prune deletes the clients whose value in a map is not in the map's ValidAddrs. The caller must call Prune after the
// Apply that removed an address, because until then, the rules may still map clients to that address.
func (t *Table) Prune(ctx context.Context, maps []ClientMap) error {
	for _, m := range maps {
		if err := t.prune(ctx, m); err != nil {
			return fmt.Errorf("clients in %s: %w", m.Name, err)
		}
	}
	return nil
}

func (t *Table) prune(ctx context.Context, m ClientMap) error {
	set := &Set{Name: m.Name, Key: []Field{Addr}}
	for attempt := 1; ; attempt++ {
		var gone []Entry
		clients := 0
		err := t.kernel.dumpElements(m.Family, t.Table, m.Name, func(raw rawElement) error {
			clients++
			client, ok := netip.AddrFromSlice(raw.key)
			target, _ := netip.AddrFromSlice(netlink.Attr(raw.data, unix.NFTA_DATA_VALUE))
			if ok && !m.ValidAddrs[target] {
				gone = append(gone, Entry{Element: Element{Family: m.Family, Addr: client}})
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			err = t.delete(ctx, set, gone)
		}
		sure := clients <= clientsPerDatagram || attempt > 1
		if err == nil && sure || err != nil && !HasErrno(err, unix.ENOENT) || attempt == pruneAttempts {
			return err
		}
	}
}

func (t *Table) delete(ctx context.Context, set *Set, list []Entry) error {
	for chunk := range slices.Chunk(list, t.chunkSize) {
		resetBatch(&t.netlinkBatch) // an earlier error may have left messages in the batch
		writeElements(&t.netlinkBatch, t.Table, setChange{set, chunk, true})
		if err := t.commitElements(ctx, false); err != nil {
			return err
		}
	}
	return nil
}
