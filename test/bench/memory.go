package main

import (
	"context"
	"time"
)

// idleMemory is the resident memory with a few Services. It leaves no rules and no process.
func (b *bench) idleMemory(ctx context.Context, p *program) error {
	if _, err := p.start(); err != nil {
		return err
	}
	if _, err := p.host.reach(ctx, []goal{serviceGoal(0)}); err != nil {
		return err
	}
	if err := b.residentMemory(ctx, p); err != nil {
		return err
	}
	return b.clear(ctx, p)
}

// residentMemory is what the program holds after all that it was put through.
func (b *bench) residentMemory(ctx context.Context, p *program) error {
	if err := p.cg.settle(ctx, settled); err != nil {
		return err
	}
	bytes, err := p.resident()
	if err != nil {
		return err
	}
	b.results.add(resident, b.size, p.name, bytes)
	return nil
}

// kernelMemory is what the kernel gives back when the program's rules go. The program is stopped for
// it.
func (b *bench) kernelMemory(ctx context.Context, p *program) error {
	if err := p.stop(); err != nil {
		return err
	}
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	before, err := p.cg.kernel()
	if err != nil {
		return err
	}
	if err := b.clear(ctx, p); err != nil {
		return err
	}
	after, err := p.cg.kernel()
	if err != nil {
		return err
	}
	b.results.add(kernelMemory, b.size, p.name, before-after)
	return nil
}
