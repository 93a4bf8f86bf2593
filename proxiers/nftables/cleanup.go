package nftables

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
)

// cleanupFamilies are the families in which any version has had a table.
var cleanupFamilies = []struct {
	number uint8
	name   knftables.Family
}{
	{unix.NFPROTO_IPV4, knftables.IPv4Family},
	{unix.NFPROTO_IPV6, knftables.IPv6Family},
	{unix.NFPROTO_INET, knftables.InetFamily},
}

// Cleanup deletes our tables. It is no error when there is none.
func Cleanup(ctx context.Context, _ proxiers.Options) error {
	c, err := dialNetfilter()
	if err != nil {
		return err
	}
	defer c.Close()
	present, err := c.tables(tableName)
	if err != nil {
		return err
	}
	if len(present) == 0 {
		return nil
	}
	nft, err := openNFT()
	if err != nil {
		return err
	}
	tx := nft.NewTransaction()
	for _, f := range cleanupFamilies {
		if slices.Contains(present, f.number) {
			tx.Delete(&knftables.Table{Family: f.name, Name: tableName})
		}
	}
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("delete tables: %w", short(err))
	}
	return nil
}
