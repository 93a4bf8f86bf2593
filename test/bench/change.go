package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"edgeway/test/e2e/cluster"
)

// change replaces one endpoint of a Service. The time is that from the API write to the first
// connection that reaches the new endpoint.
func (b *bench) change(ctx context.Context, p *program) error {
	slice, g := b.nextChange(rand.IntN(b.size))
	before, err := p.cg.CPU()
	if err != nil {
		return err
	}
	return b.measureWrite(ctx, p, change, before, func() (time.Time, error) {
		return p.after(ctx, []goal{g}, func() error { return b.origin.UpdateSlices(ctx, []*discoveryv1.EndpointSlice{slice}) })
	})
}

// newService adds a Service and its slice, and removes them afterwards. The time is that from the
// write of the slice: the API server takes the longer for a new Service the more there are, to which
// no proxy can do anything.
func (b *bench) newService(ctx context.Context, p *program) error {
	// A ClusterIP that was used and freed would be in conntrack still.
	b.changed++
	i := b.size + b.changed
	before, err := p.cg.CPU()
	if err != nil {
		return err
	}
	if err := b.origin.AddService(ctx, i); err != nil {
		return err
	}
	slice := cluster.Slice(i, b.opts.endpoints)
	err = b.measureWrite(ctx, p, newService, before, func() (time.Time, error) {
		return p.after(ctx, []goal{serviceGoal(i)}, func() error { return b.origin.AddSlice(ctx, slice) })
	})
	if err != nil {
		return err
	}
	return b.origin.RemoveService(ctx, i)
}

// burst replaces one endpoint of each of many Services (of all, when there are not that many) and
// waits until all changes have arrived.
func (b *bench) burst(ctx context.Context, p *program) error {
	var goals []goal
	var slices []*discoveryv1.EndpointSlice
	for _, i := range rand.Perm(b.size)[:min(b.size, b.opts.burst)] {
		slice, g := b.nextChange(i)
		slices, goals = append(slices, slice), append(goals, g)
	}
	before, err := p.cg.CPU()
	if err != nil {
		return err
	}
	return b.measureWrite(ctx, p, burst, before, func() (time.Time, error) {
		return p.after(ctx, goals, func() error { return b.origin.UpdateSlices(ctx, slices) })
	})
}

// nextChange gives the slice of Service i with an endpoint that it never had in its last changes,
// and the goal that this endpoint is reached.
func (b *bench) nextChange(i int) (*discoveryv1.EndpointSlice, goal) {
	b.changed++
	slice := cluster.Slice(i, b.opts.endpoints)
	endpoint := cluster.EndpointAddr(i, maxEndpoints+b.changed%maxEndpoints)
	slice.Endpoints[b.changed%b.opts.endpoints].Addresses[0] = endpoint.String()
	g := serviceGoal(i)
	g.endpoint = endpoint
	return slice, g
}

// measureWrite records the time that write gives, counted from now, and the CPU time since before
// until the program is idle again.
func (b *bench) measureWrite(ctx context.Context, p *program, what measure, before time.Duration, write func() (time.Time, error)) error {
	began := time.Now()
	end, err := write()
	if err != nil {
		return err
	}
	// Longer than the second after which Edgeway writes changes to disk.
	if err := p.cg.Settle(ctx, 1500*time.Millisecond); err != nil {
		return err
	}
	after, err := p.cg.CPU()
	if err != nil {
		return err
	}
	b.results.add(what, b.size, p.name, end.Sub(began).Seconds())
	b.results.add(what.CPU(), b.size, p.name, (after - before).Seconds())
	return nil
}

// after gives the time at which all goals came to pass while write runs.
func (p *program) after(ctx context.Context, goals []goal, write func() error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		err := write()
		if err != nil {
			cancel()
		}
		written <- err
	}()
	end, err := p.host.reach(ctx, goals)
	if werr := <-written; werr != nil {
		return end, fmt.Errorf("write: %w", werr)
	}
	return end, err
}
