package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// rested is how long a program must be idle before its memory counts. Edgeway gives memory back 3 s after a sync, Go by itself
// every two minutes.
const rested = 5 * time.Second

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
	if err := p.cg.Settle(ctx, rested); err != nil {
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
	if err := b.forgetFlows(); err != nil {
		return err
	}
	before, err := steadyKernel(ctx)
	if err != nil {
		return err
	}
	if err := b.clear(ctx, p); err != nil {
		return err
	}
	after, err := steadyKernel(ctx)
	if err != nil {
		return err
	}
	b.results.add(kernelMemory, b.size, p.name, before-after)
	return nil
}

// steadyKernel is the kernel memory once it no longer falls: what a transaction removes is freed in
// the background, seconds later when it was much. On a machine that does other work too it may never be steady:
// the last figure counts then.
func steadyKernel(ctx context.Context) (float64, error) {
	const pause, steady, patience = 250 * time.Millisecond, 64 << 10, 40
	last, err := kernelBytes()
	for still, n := 0, 0; err == nil && still < 8 && n < patience; still, n = still+1, n+1 {
		if err := sleep(ctx, pause); err != nil {
			return 0, err
		}
		var now float64
		if now, err = kernelBytes(); last-now > steady {
			still = 0
		}
		last = now
	}
	return last, err
}

// kernelBytes is all memory of the kernel that rule sets can be in: objects, tables of more than a
// page, and counters of each CPU. The whole machine's, as a control group misses what the kernel
// allocates in the background and moves what two groups share; the caches of files are left out.
func kernelBytes() (float64, error) {
	// The figures of each CPU are added to these only now and then, and when this is written to.
	if err := os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0o644); err != nil {
		return 0, fmt.Errorf("kernel memory: %w", err)
	}
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("kernel memory: %w", err)
	}
	var sum float64
	for _, name := range []string{"SUnreclaim:", "VmallocUsed:", "Percpu:"} {
		bytes, err := field(string(raw), name)
		if err != nil {
			return 0, err
		}
		sum += bytes
	}
	return sum, nil
}
