package main

import (
	"context"
	"fmt"
	"os"
	"strings"
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
	before, err := kernelBytes()
	if err != nil {
		return err
	}
	if err := b.clear(ctx, p); err != nil {
		return err
	}
	after, err := kernelBytes()
	if err != nil {
		return err
	}
	b.results.add(kernelMemory, b.size, p.name, before-after)
	return nil
}

// kernelBytes is the memory that nftables' objects are part of: the live objects of the kernel's
// general allocator, and what is too large for it (the buckets of hash tables). Slabs as a whole
// would not do: one that two programs' rules share is given back when both are gone.
func kernelBytes() (float64, error) {
	// The counters of meminfo are kept for each CPU; this sums them up.
	if err := os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0o600); err != nil {
		return 0, fmt.Errorf("kernel memory: %w", err)
	}
	info, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		return 0, fmt.Errorf("kernel memory: %w", err)
	}
	live, pages, err := slabs(string(info))
	if err != nil {
		return 0, err
	}
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("kernel memory: %w", err)
	}
	sum := live - pages*float64(os.Getpagesize())
	for _, name := range []string{"Slab:", "Percpu:", "VmallocUsed:"} {
		bytes, err := field(string(raw), name)
		if err != nil {
			return 0, err
		}
		sum += bytes
	}
	return sum, nil
}

// slabs reads /proc/slabinfo, version 2.1: the bytes of live objects of the kmalloc caches (those of
// caches that file systems fill left out), and the pages of all caches.
func slabs(info string) (live, pages float64, err error) {
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "slabinfo") || strings.HasPrefix(line, "#") {
			continue
		}
		var name, limits, data string
		var active, objects, size, perSlab, slabPages, slabs float64
		var skip [3]float64
		_, err := fmt.Sscanf(line, "%s %f %f %f %f %f : %s %f %f %f : %s %f %f",
			&name, &active, &objects, &size, &perSlab, &slabPages, &limits, &skip[0], &skip[1], &skip[2], &data, &skip[0], &slabs)
		if err != nil {
			return 0, 0, fmt.Errorf("slabinfo: %q: %w", line, err)
		}
		pages += slabs * slabPages
		if strings.HasPrefix(name, "kmalloc-") && !strings.HasPrefix(name, "kmalloc-rcl-") {
			live += active * size
		}
	}
	return live, pages, nil
}
