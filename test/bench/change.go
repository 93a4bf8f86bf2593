package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"edgeway/test/e2e/cluster"
)

// measureChange replaces an endpoint of one Service and measures the time until the host uses the new endpoint. The
// measurement ends when a connection reaches the new endpoint.
func (b *bench) measureChange(ctx context.Context, p *program) error {
	return b.replaceEndpoints(ctx, p, change, 1)
}

// measureBurst replaces one endpoint in each of many Services, and measures the time until the host uses all of the new
// endpoints.
func (b *bench) measureBurst(ctx context.Context, p *program) error {
	return b.replaceEndpoints(ctx, p, burst, min(b.size, burstSize))
}

const burstSize = 200

func (b *bench) replaceEndpoints(ctx context.Context, p *program, what measure, count int) error {
	var goals []goal
	var changed []*discoveryv1.EndpointSlice
	for _, i := range rand.Perm(b.size)[:count] {
		slice, g := b.nextChange(i)
		changed, goals = append(changed, slice), append(goals, g)
	}
	return b.recordRun(ctx, p, what, func() (time.Duration, error) {
		return p.measureUntil(ctx, goals, func() error { return b.cluster.UpdateSlices(ctx, changed) })
	})
}

// measureNewService adds a Service and its EndpointSlice, measures the time until the Service works, and deletes both
// objects. The measurement starts when the benchmark writes the EndpointSlice, because the time that the API server
// takes to write a Service grows with the number of Services.
func (b *bench) measureNewService(ctx context.Context, p *program) error {
	b.changed++
	i := b.size + b.changed // never reuse a ClusterIP, because the kernel still tracks old connections to it
	err := b.recordRun(ctx, p, newService, func() (time.Duration, error) {
		if err := b.cluster.AddService(ctx, i); err != nil {
			return 0, err
		}
		return p.measureUntil(ctx, []goal{serviceGoal(i)}, func() error {
			return b.cluster.AddSlice(ctx, cluster.Slice(i, endpointsPerService))
		})
	})
	if err != nil {
		return err
	}
	return b.cluster.RemoveService(ctx, i)
}

// nextChange returns the EndpointSlice of Service i with a new endpoint that recent changes did not use, and a goal
// that requires a connection to this endpoint.
func (b *bench) nextChange(i int) (*discoveryv1.EndpointSlice, goal) {
	b.changed++
	slice := cluster.Slice(i, endpointsPerService)
	endpoint := cluster.EndpointAddr(i, 8+b.changed%8)
	slice.Endpoints[b.changed%endpointsPerService].Addresses[0] = endpoint.String()
	g := serviceGoal(i)
	g.endpoint = endpoint
	return slice, g
}

// measureUntil calls write, and returns the time from the start of this call until the host has reached all goals.
func (p *program) measureUntil(ctx context.Context, goals []goal, write func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	began := time.Now()
	written := make(chan error, 1)
	go func() {
		err := write()
		if err != nil {
			cancel()
		}
		written <- err
	}()
	end, err := p.host.reach(ctx, goals)
	if errWrite := <-written; errWrite != nil {
		return 0, fmt.Errorf("write: %w", errWrite)
	}
	return end.Sub(began), err
}

// measureConnections measures the time that it takes to connect to a Service. The programs take turns in short blocks,
// so other load on the machine affects all programs equally. Each block reverses the order of the previous block,
// because the contents of the CPU caches depend on which program ran before.
func (b *bench) measureConnections(ctx context.Context) error {
	const blocks, block = 40, 250
	if err := b.deleteFlows(); err != nil {
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
