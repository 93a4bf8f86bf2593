package main

import (
	"context"
)

// coldStart starts Edgeway on a host without rules while the API server is down: all it has is what
// it saw before.
func (b *bench) coldStart(ctx context.Context) error {
	if err := b.turn(ctx, b.ours); err != nil {
		return err
	}
	if err := b.clear(ctx, b.ours); err != nil {
		return err
	}
	b.cluster.StopAPIServer()
	began, err := b.ours.start()
	if err != nil {
		return err
	}
	end, err := b.ours.host.reach(ctx, b.sample())
	if err != nil {
		return err
	}
	b.results.add(coldStart, b.size, oursName, end.Sub(began).Seconds())
	return b.cluster.StartAPIServer(ctx)
}
