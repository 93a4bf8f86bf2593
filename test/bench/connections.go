package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// connections measures the time of a new connection through a Service, each to another Service, in
// short blocks that take turns: what disturbs one program disturbs the other. Which one is first
// alternates, for the second finds the caches of the processor as the first left them.
func (b *bench) connections(blocks int) func(context.Context) error {
	return func(ctx context.Context) error { return b.connectBlocks(ctx, blocks) }
}

func (b *bench) connectBlocks(ctx context.Context, blocks int) error {
	const block = 250
	if err := b.forgetFlows(); err != nil {
		return err
	}
	order := b.programs()
	for range blocks {
		targets := make([]netip.AddrPort, block)
		for i := range targets {
			targets[i] = serviceGoal(rand.IntN(b.size)).to
		}
		for _, p := range order {
			if err := ctx.Err(); err != nil {
				return err
			}
			each, err := p.host.connectAll(targets)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			b.results.add(connection, b.size, p.name, each.Seconds())
		}
		slices.Reverse(order)
	}
	return nil
}
