package main

import (
	"context"
	"fmt"
	"io"
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
	// maxEndpoints of a Service leaves numbers of cluster.EndpointAddr for the endpoints of changes.
	maxEndpoints = 8
	// fewServices is the size of the resident memory of an idle edge host.
	fewServices = 3
)

// bench is one run.
type bench struct {
	opts    options
	log     *slog.Logger
	dir     string
	lab     *lab
	origin  origin
	cluster *cluster.Cluster // the origin, unless that is manifests
	ours    *program
	peer    *program // nil: not measured
	floor   *program // nil: not measured; it runs only while it is
	results results
	size    int // Services that exist
	changed int // changes made so far
}

func newBench(ctx context.Context, opts options) (*bench, error) {
	dir, err := os.MkdirTemp("", "edgeway-bench-")
	if err != nil {
		return nil, fmt.Errorf("directory of the bench: %w", err)
	}
	b := &bench{opts: opts, dir: dir, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), results: results{kit.Figures{}}}
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
	if err := b.newOrigin(ctx); err != nil {
		return err
	}
	if b.ours, err = b.newEdgeway(ctx, oursName, b.opts.edgeway); err != nil {
		return err
	}
	switch {
	case b.opts.previous != "":
		b.peer, err = b.newEdgeway(ctx, peerName, b.opts.previous)
	case b.opts.kubeProxy != "" && b.cluster != nil:
		b.peer, err = b.newPeer(ctx, b.opts.kubeProxy)
	}
	if err == nil && b.opts.floor && b.opts.mode.whole && b.cluster != nil {
		b.floor, err = b.newFloor(ctx)
	}
	return err
}

func (b *bench) close() {
	for _, p := range []*program{b.ours, b.peer, b.floor} {
		if p != nil {
			b.keepLog(p)
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
	p.log = p.file("log")
	// A program that is frozen with the lock of iptables-legacy must not hold up the other one.
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

func (b *bench) keepLog(p *program) {
	if b.opts.logs == "" {
		return
	}
	if err := copyFile(filepath.Join(b.opts.logs, p.name+".log"), p.log); err != nil {
		b.log.Error("log not kept", "program", p.name, "error", err)
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, in)
	return err
}

// programs are those that are measured at the present size.
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

// all measures every size in turn, on one API server that fills up.
func (b *bench) all(ctx context.Context) error {
	if err := b.grow(ctx, fewServices); err != nil {
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
		for _, step := range b.opts.mode.steps(b) {
			b.log.Info("measuring", "what", step.name, "services", size)
			if err := step.run(ctx); err != nil {
				return fmt.Errorf("%s at %d Services: %w", step.name, size, err)
			}
		}
	}
	return nil
}

// grow adds Services up to size. The programs are stopped, for what they make of so many new Services is not
// measured. One that takes too long to start with all of them follows instead.
func (b *bench) grow(ctx context.Context, size int) error {
	var followers []*program
	// All at once, or so many that a program follows soon.
	step, write := size, size
	for _, p := range b.programs() {
		if p.slow && size <= b.opts.peerLimit {
			// Load writes many objects under one revision. A watch that ends between two of them, as it
			// does when a program is slow to read, goes on behind both.
			followers, step, write = append(followers, p), 1000, 1
		} else if err := p.stop(); err != nil {
			return err
		}
	}
	for b.size < size {
		if err := b.load(ctx, min(b.size+step, size), write); err != nil {
			return err
		}
		for _, p := range followers {
			if err := b.follow(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// load adds Services up to size, that many in each write.
func (b *bench) load(ctx context.Context, size, write int) error {
	began := time.Now()
	for b.size < size {
		added := min(write, size-b.size)
		err := b.origin.Load(ctx, cluster.Load{First: b.size, Services: added, Endpoints: b.opts.endpoints})
		if err != nil {
			return err
		}
		b.size += added
	}
	b.log.Info("loaded", "services", b.size, "seconds", time.Since(began).Seconds())
	return nil
}

// follow lets a program catch up with new Services.
func (b *bench) follow(ctx context.Context, p *program) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := b.turn(ctx, p); err != nil {
		return err
	}
	if _, err := p.host.reach(ctx, b.sample()); err != nil {
		return fmt.Errorf("%s at %d Services: %w", p.name, b.size, err)
	}
	return nil
}

type step struct {
	name string
	run  func(context.Context) error
}

// inTurns lets the programs take turns at a measurement, each as often the first of a round as the other. Those whose turn
// it is not are frozen, and one whose turn begins first catches up with what it missed.
func (b *bench) inTurns(rounds int, measure func(context.Context, *program) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for round := range rounds {
			for _, p := range turned(b.programs(), round) {
				if err := b.turn(ctx, p); err != nil {
					return err
				}
				if err := measure(ctx, p); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
		}
		return b.turn(ctx, nil)
	}
}

// turned gives the programs in the order of a round.
func turned(programs []*program, round int) []*program {
	if round%2 == 1 {
		slices.Reverse(programs)
	}
	return programs
}

// turn freezes all programs but p and waits until p is idle.
func (b *bench) turn(ctx context.Context, p *program) error {
	for _, other := range b.programs() {
		if err := other.cg.Freeze(other != p); err != nil {
			return err
		}
	}
	if p == nil {
		return nil
	}
	return p.cg.Settle(ctx, time.Second)
}
