package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"edgeway/test/bench/cgroup"
	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

const (
	// endpointsPerService is the number of endpoints per Service. Endpoints that the benchmark adds later have
	// higher numbers.
	endpointsPerService = 5
	// smallHostServices is the number of Services on a small edge host.
	smallHostServices = 3
)

type bench struct {
	opts              options
	log               *slog.Logger
	dir               string
	lab               *lab
	cluster           *cluster.Cluster
	ours, peer, floor *program // peer and floor may be nil; floor runs only during changes
	results           results
	size              int // the number of existing Services
	changed           int // the number of changes so far
}

func newBench(ctx context.Context, opts options) (*bench, error) {
	dir, err := os.MkdirTemp("", "edgeway-bench-")
	if err != nil {
		return nil, fmt.Errorf("benchmark directory: %w", err)
	}
	b := &bench{
		opts: opts, dir: dir, log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		results: results{kit.Figures{}},
	}
	if err := b.setup(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) setup(ctx context.Context) error {
	var err error
	if b.lab, err = newLab(ctx, b.opts.patience); err != nil {
		return err
	}
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Netns: b.lab.core(), Addr: b.lab.api}); err != nil {
		return err
	}
	if b.ours, err = b.newEdgeway(ctx, oursName, b.opts.edgeway); err != nil {
		return err
	}
	switch {
	case b.opts.previous != "":
		b.peer, err = b.newEdgeway(ctx, peerName, b.opts.previous)
	case b.opts.kubeProxy != "":
		b.peer, err = b.newKubeProxy(ctx, b.opts.kubeProxy)
	}
	if err == nil && b.opts.mode.allSteps {
		b.floor, err = b.newFloor(ctx)
	}
	return err
}

func (b *bench) close() {
	for _, p := range []*program{b.ours, b.peer, b.floor} {
		if p != nil {
			p.close()
		}
	}
	if b.cluster != nil {
		b.cluster.Stop()
	}
	if b.lab != nil {
		b.lab.close()
	}
	_ = os.RemoveAll(b.dir)
}

func (b *bench) newProgram(ctx context.Context, name string) (*program, error) {
	p := &program{name: name, dir: filepath.Join(b.dir, name+".d")}
	p.log = filepath.Join(cmp.Or(b.opts.logs, b.dir), name+".log")
	// Each program has its own iptables-legacy lock, because a frozen program could otherwise hold the lock that the
	// other programs need.
	p.env = []string{"XTABLES_LOCKFILE=" + p.file("xtables.lock")}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of %s: %w", name, err)
	}
	var err error
	if p.host, err = b.lab.addHost(ctx, name); err != nil {
		return nil, err
	}
	p.cg, err = cgroup.New(b.lab.prefix + name)
	return p, err
}

// programs returns the programs that the benchmark measures with the current number of Services.
func (b *bench) programs() []*program {
	all := []*program{b.ours}
	if b.peer != nil && b.size <= b.opts.peerLimit {
		all = append(all, b.peer)
	}
	if b.floor != nil && b.floor.cmd != nil {
		all = append(all, b.floor)
	}
	return all
}

// measureAll performs all measurements for each number of Services, in ascending order, with the same API server.
func (b *bench) measureAll(ctx context.Context) error {
	if err := b.grow(ctx, smallHostServices); err != nil {
		return err
	}
	for _, p := range b.programs() {
		if err := b.idleMemory(ctx, p); err != nil {
			return err
		}
	}
	for _, size := range b.opts.sizes {
		if err := b.grow(ctx, size); err != nil {
			return err
		}
		for _, step := range b.steps() {
			b.log.Info("measuring", "what", step.name, "services", size)
			if err := step.run(ctx); err != nil {
				return fmt.Errorf("%s at %d Services: %w", step.name, size, err)
			}
		}
	}
	return nil
}

func (b *bench) grow(ctx context.Context, size int) error {
	for _, p := range b.programs() {
		if err := p.stop(); err != nil {
			return err
		}
	}
	began := time.Now()
	err := b.cluster.Load(ctx, cluster.Load{First: b.size, Services: size - b.size, Endpoints: endpointsPerService})
	if err != nil {
		return err
	}
	b.size = size
	b.log.Info("loaded", "services", size, "seconds", time.Since(began).Seconds())
	return nil
}

// measureInTurns returns a function that calls measure for every program in each round. Each round reverses the order
// of the previous round.
func (b *bench) measureInTurns(rounds int, measure func(context.Context, *program) error) func(context.Context) error {
	return func(ctx context.Context) error { return b.turns(ctx, rounds, b.programs(), measure) }
}

func (b *bench) turns(
	ctx context.Context, rounds int, programs []*program, measure func(context.Context, *program) error,
) error {
	for range rounds {
		for _, p := range programs {
			if err := b.switchTo(ctx, p); err != nil {
				return err
			}
			if err := measure(ctx, p); err != nil {
				return fmt.Errorf("%s: %w; the end of the program's log:\n%s", p.name, err, p.tail())
			}
		}
		slices.Reverse(programs)
	}
	return b.switchTo(ctx, nil)
}

// switchTo freezes all programs except p, and waits until p has processed the changes that it missed while frozen.
func (b *bench) switchTo(ctx context.Context, p *program) error {
	for _, other := range b.programs() {
		if err := other.cg.Freeze(other != p); err != nil {
			return err
		}
	}
	if p == nil {
		return nil
	}
	return p.cg.WaitIdle(ctx, time.Second)
}

// recordRun calls the function do, and records the returned duration. recordRun also records the CPU time that the
// program uses from the start of this call until the program is idle again.
func (b *bench) recordRun(ctx context.Context, p *program, what measure, do func() (time.Duration, error)) error {
	before, err := p.cg.CPU()
	if err != nil {
		return err
	}
	took, err := do()
	if err != nil {
		return err
	}
	if err := p.cg.WaitIdle(ctx, 2*time.Second); err != nil {
		return err
	}
	after, err := p.cg.CPU()
	if err != nil {
		return err
	}
	b.results.add(what, b.size, p.name, took.Seconds())
	b.results.add(what.CPU(), b.size, p.name, (after - before).Seconds())
	return nil
}
