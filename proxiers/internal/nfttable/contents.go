package nfttable

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// Counters returns the packet counts of each family by counter name. A missing table has no counters. Counters may be
// called from any goroutine.
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

// ClientMap is an nft map from client addresses to other addresses. Rules fill the map.
type ClientMap struct {
	Family plan.Family
	Name   string
	// Valid holds the addresses to which clients may be mapped.
	Valid map[netip.Addr]bool
}

// pruneAttempts is the number of attempts to delete clients. A deletion fails as a whole if one of the clients times
// out between the read and the deletion.
const pruneAttempts = 5

// sureClients is the number of clients that certainly fit into one datagram. A list of several datagrams may lack
// clients, because clients are added and expire during the read or because of the kernel's behavior that reread
// describes. So Prune reads a list of several datagrams again.
const sureClients = 40

// Prune deletes from the maps the clients that are mapped to an invalid address. Call Prune after the Apply that
// removed the address, so that the rules map no more clients to the address.
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
		err := t.kernel.elements(m.Family, t.Table, m.Name, func(raw rawElement) error {
			clients++
			client, ok := netip.AddrFromSlice(raw.key)
			target, _ := netip.AddrFromSlice(netlink.Attr(raw.data, unix.NFTA_DATA_VALUE))
			if ok && !m.Valid[target] {
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
		sure := clients <= sureClients || attempt > 1
		if err == nil && sure || err != nil && !missing(err) || attempt == pruneAttempts {
			return err
		}
	}
}
