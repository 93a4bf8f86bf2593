package main

import (
	"context"
	"math/rand/v2"
	"net/netip"
)

// connections measures the time of a new connection through a Service, each to another Service, in
// short blocks that take turns: what disturbs one program disturbs the other.
func (b *bench) connections(ctx context.Context) error {
	const blocks, block = 40, 250
	for range blocks {
		targets := make([]netip.AddrPort, block)
		for i := range targets {
			targets[i] = serviceGoal(rand.IntN(b.size)).to
		}
		for _, p := range b.programs() {
			if err := ctx.Err(); err != nil {
				return err
			}
			each, err := p.host.connectAll(targets)
			if err != nil {
				return err
			}
			b.results.add(connection, b.size, p.name, each.Seconds())
		}
	}
	return nil
}
