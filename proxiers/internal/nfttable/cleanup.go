package nfttable

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// cleanupLimit is the timeout for a cleanup. The kernel needs seconds to delete a table with 30,000 Services, or
// minutes on a busy machine.
const cleanupLimit = 10 * time.Minute

// cleanupFamilies lists the families in which any version of Edgeway has created a table.
var cleanupFamilies = []struct {
	number uint8
	name   knftables.Family
}{
	{unix.NFPROTO_IPV4, knftables.IPv4Family},
	{unix.NFPROTO_IPV6, knftables.IPv6Family},
	{unix.NFPROTO_INET, knftables.InetFamily},
}

// Cleanup deletes the tables with the given name. Missing tables are not an error.
func Cleanup(ctx context.Context, table string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	present, err := c.tableFamilies(table)
	if err != nil || len(present) == 0 {
		return err
	}
	nft, err := FindProgram()
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
	// A packet traverses the rules of the generation that was current when the packet arrived. Each map or set lookup,
	// however, uses the current generation (Linux 6.18). If Cleanup did not disable the tables first, their rules could
	// look up a key in an empty map and reject a packet to a Service that another backend already serves.
	if err := nft.run(ctx, disable); err != nil {
		return fmt.Errorf("disable tables: %w", err)
	}
	awaitPackets()
	if err := nft.run(ctx, remove); err != nil {
		return fmt.Errorf("delete tables: %w", err)
	}
	return nil
}

// awaitPackets waits until no packet is traversing rules that the kernel has replaced. If the kernel cannot wait, for
// example with nohz_full, awaitPackets returns immediately. Even without the wait, no packet is traversing the replaced
// rules by the time the next nft process starts.
func awaitPackets() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL in linux/membarrier.h, which waits for an RCU grace period
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}
