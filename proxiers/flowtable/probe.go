package flowtable

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
)

// probe has nft and the kernel check a table that is never made, with a rule of each kind.
func probe(ctx context.Context, opts Options) error {
	nft, err := nfttable.FindProgram()
	if err != nil {
		return err
	}
	return try(ctx, nft, opts)
}

func try(ctx context.Context, nft *nfttable.Program, opts Options) error {
	opts.Hardware = false // which is asked for each device
	sample := &contents{}
	sample.of[ports4] = []string{"tcp . 192.0.2.1 . 80"}
	commands := strings.ReplaceAll(whole(sample, []string{"lo"}, opts), tableName, tableName+"-probe")
	err := nft.Check(ctx, commands)
	if errors.Is(err, proxiers.ErrUnsupported) {
		err = fmt.Errorf("this kernel has no flowtable (modules nf_flow_table_inet and nft_flow_offload): %w", err)
	}
	return err
}

// probe finds out whether this host has what is needed. What it lacks is no error of a sync: all else works.
func (f *follower) probe(ctx context.Context) error {
	if f.nft == nil {
		return nil
	}
	err := try(ctx, f.nft, f.opts)
	if err != nil && !errors.Is(err, proxiers.ErrUnsupported) {
		return err
	}
	f.mu.Lock()
	before := f.unavailable
	f.unavailable = err
	f.mu.Unlock()
	if err != nil && before == nil {
		f.env.Logger.Warn("no fast path on this host, all connections take the rules", "error", err)
	}
	return nil
}
