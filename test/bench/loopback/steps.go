package main

import (
	"context"
	"math"
	"slices"
	"time"
)

// step is something that is measured.
type step struct {
	name string
	run  func(context.Context, *relay) error
}

const (
	// manyStreams is the number of streams that stands for several clients.
	manyStreams = 8
	// crowd is how many clients connect at the same time when new connections are counted, and when
	// the delay of each is measured.
	crowd, group = 32, 8
	// memoryRounds is how often memory is measured: each time with a new process.
	memoryRounds = 3
)

func (b *bench) steps() []step {
	return []step{
		{"1 stream, down", b.throughput(down1, askSend, 1)},
		{"1 stream, up", b.throughput(up1, askDrop, 1)},
		{"8 streams, down", b.throughput(down8, askSend, manyStreams)},
		{"8 streams, up", b.throughput(up8, askDrop, manyStreams)},
		{"connections", b.connections},
		{"delay, one client", b.delay(delay1, 1)},
		{"delay, several clients", b.delay(delayGroup, group)},
	}
}

// throughput measures bytes a second, and the CPU time of a byte.
func (b *bench) throughput(m measure, ask byte, streams int) func(context.Context, *relay) error {
	return func(_ context.Context, r *relay) error {
		t := transfer{to: r.addr, streams: streams, ask: ask, monitor: b.monitor}
		var marks []time.Duration
		bytes, took, err := t.run(b.opts.window/4, b.opts.window, func() error {
			used, err := r.cpu()
			marks = append(marks, used)
			return err
		})
		if err != nil {
			return err
		}
		b.results.add(m, r.name, bytes/took.Seconds())
		if r.cg != nil {
			b.results.add(m.CPU(), r.name, (marks[1]-marks[0]).Seconds()/bytes)
		}
		return nil
	}
}

// connections measures new connections a second, and the CPU time of each, its end included.
func (b *bench) connections(_ context.Context, r *relay) error {
	before, err := r.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	v := volley{to: r.addr, count: b.opts.connections, width: crowd}
	if err := v.run(); err != nil {
		return err
	}
	took := time.Since(began)
	if err := b.monitor.idle(); err != nil {
		return err
	}
	after, err := r.cpu()
	if err != nil {
		return err
	}
	b.results.add(rate, r.name, float64(v.count)/took.Seconds())
	if r.cg != nil {
		b.results.add(rate.CPU(), r.name, (after-before).Seconds()/float64(v.count))
	}
	return nil
}

// delay measures the time until the first byte is back.
func (b *bench) delay(m measure, width int) func(context.Context, *relay) error {
	return func(_ context.Context, r *relay) error {
		v := volley{to: r.addr, count: b.opts.connections, width: width}
		if err := v.run(); err != nil {
			return err
		}
		b.results.add(m, r.name, percentile(v.delays, 50).Seconds())
		b.results.add(p99(m), r.name, percentile(v.delays, 99).Seconds())
		return nil
	}
}

// percentile is the least delay that at least percent of 100 do not exceed.
func percentile(delays []time.Duration, percent float64) time.Duration {
	sorted := slices.Sorted(slices.Values(delays))
	return sorted[int(math.Ceil(float64(len(sorted))*percent/100))-1]
}

// memory measures what a program holds for each idle connection, with a new process.
func (b *bench) memory(ctx context.Context, r *relay) error {
	if r.cg == nil {
		return nil
	}
	if err := r.start(b.lab); err != nil {
		return err
	}
	const quiet = time.Second
	if err := r.cg.Settle(ctx, quiet); err != nil {
		return err
	}
	before, err := r.memory()
	if err != nil {
		return err
	}
	v := volley{to: r.addr, count: r.idle, width: crowd, keep: true}
	defer v.close()
	if err := v.run(); err != nil {
		return err
	}
	if err := r.cg.Settle(ctx, quiet); err != nil {
		return err
	}
	after, err := r.memory()
	if err != nil {
		return err
	}
	b.results.add(idleMemory, r.name, (after-before)/float64(r.idle))
	v.close()
	if err := b.monitor.idle(); err != nil {
		return err
	}
	return r.stop()
}
