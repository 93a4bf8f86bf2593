package flowtable

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
)

// probe asks nft and the kernel to validate every kind of rule. The validation does not create the nftables table.
func probe(ctx context.Context) error {
	nft, err := nfttable.FindProgram()
	if err != nil {
		return err
	}
	return try(ctx, nft)
}

func try(ctx context.Context, nft *nfttable.Program) error {
	sample := &contents{}
	sample.of[ports4] = []string{"tcp . 192.0.2.1 . 80"}
	commands := strings.ReplaceAll(tableCommands(sample, []string{"lo"}), tableName, tableName+"-probe")
	err := nft.Validate(ctx, commands)
	if errors.Is(err, proxiers.ErrUnsupported) {
		err = fmt.Errorf("this kernel does not support flowtables "+
			"(modules nf_flow_table_inet and nft_flow_offload): %w", err)
	}
	return err
}

// probe records whether this host supports the fast path. Lack of support is not an error, because connections also
// work without the fast path.
func (f *follower) probe(ctx context.Context) error {
	if f.nft == nil {
		return nil
	}
	err := try(ctx, f.nft)
	if err != nil && !errors.Is(err, proxiers.ErrUnsupported) {
		return err
	}
	f.mu.Lock()
	before := f.unavailableErr
	f.unavailableErr = err
	f.mu.Unlock()
	if err != nil && before == nil {
		f.env.Logger.Warn("this host does not support the fast path", "error", err)
	}
	return nil
}
