package nfttable

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// Counters gives the packets of the counters of each family by their names. A table that is not there has counted
// nothing. It may be called from any goroutine.
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

// ClientMap is a map that rules fill, from a client's address to another one.
type ClientMap struct {
	Family plan.Family
	Name   string
	// Valid are the addresses that clients may lead to.
	Valid map[netip.Addr]bool
}

// pruneAttempts is how often a deletion of clients is tried: it fails as a whole when one of them
// times out between the read and the deletion.
const pruneAttempts = 5

// sureClients is the number of clients that one datagram surely holds. A list of several may lack some, because clients
// come and go meanwhile, or for the reason that reread has: it is read again.
const sureClients = 40

// Prune deletes from the maps the clients that lead to an address that is not valid. It comes after the Apply that
// took out the address, so that no more are added.
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
