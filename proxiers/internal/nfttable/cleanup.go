package nfttable

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// cleanupLimit bounds a clean-up: the kernel deletes a table of 30,000 Services within seconds, a busy machine within
// minutes.
const cleanupLimit = 10 * time.Minute

// cleanupFamilies are the families in which any version has had a table.
var cleanupFamilies = []struct {
	number uint8
	name   knftables.Family
}{
	{unix.NFPROTO_IPV4, knftables.IPv4Family},
	{unix.NFPROTO_IPV6, knftables.IPv6Family},
	{unix.NFPROTO_INET, knftables.InetFamily},
}

// Cleanup deletes the tables of this name. It is no error when there is none.
func Cleanup(ctx context.Context, table string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	present, err := c.tables(table)
	if err != nil || len(present) == 0 {
		return err
	}
	nft, err := findNFT()
	if err != nil {
		return err
	}
	disable, remove := newTransaction(), newTransaction()
	for _, f := range cleanupFamilies {
		if slices.Contains(present, f.number) {
			disable.Add(&knftables.Table{
				Family: f.name, Name: table,
				Flags: []knftables.TableFlag{knftables.DormantFlag},
			})
			remove.Delete(&knftables.Table{Family: f.name, Name: table})
		}
	}
	// A packet that is among our rules keeps to those of the old generation, but each lookup in a map or set
	// asks for the generation of that moment (Linux 6.18): in the midst of a deletion it misses its Service,
	// which another backend serves, and can be rejected by the rules for the rest. So no packet may be there.
	if err := nft.run(ctx, disable); err != nil {
		return fmt.Errorf("disable tables: %w", err)
	}
	awaitPackets()
	if err := nft.run(ctx, remove); err != nil {
		return fmt.Errorf("delete tables: %w", err)
	}
	return nil
}

// awaitPackets returns when no packet is among rules that the kernel has stopped using. It does nothing where
// the kernel refuses it, as with nohz_full: the nft program takes longer to start than a packet to pass.
func awaitPackets() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h: waits for an RCU grace period
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}
