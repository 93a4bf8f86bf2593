package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// settled is how long a program must be idle after a sync before its CPU time is read.
const settled = 2 * time.Second

// firstSync starts the program on a host without rules. It is over when connections to a sample of
// all Services work, the first and the last among them.
func (b *bench) firstSync(ctx context.Context, p *program) error {
	if p.slow {
		return nil
	}
	if err := b.clear(ctx, p); err != nil {
		return err
	}
	if err := p.forget(); err != nil {
		return err
	}
	return b.measureStart(ctx, p, firstSync, func(began time.Time) (time.Time, error) {
		end, err := p.host.reach(ctx, b.sample())
		p.slow = end.Sub(began) > b.opts.firstSyncLimit
		return end, err
	})
}

// restart starts the program on a host that has all its rules. It is over when the program says so.
func (b *bench) restart(ctx context.Context, p *program) error {
	if err := p.stop(); err != nil {
		return err
	}
	return b.measureStart(ctx, p, restart, func(began time.Time) (time.Time, error) {
		return p.waitSynced(ctx, began)
	})
}

// clear stops the program and removes its rules.
func (b *bench) clear(ctx context.Context, p *program) error {
	if err := p.stop(); err != nil {
		return err
	}
	if err := b.clearRules(p); err != nil {
		return err
	}
	// The kernel frees what was removed in the background.
	return sleep(ctx, time.Second)
}

func (b *bench) measureStart(ctx context.Context, p *program, what measure, over func(time.Time) (time.Time, error)) error {
	before, err := p.cg.CPU()
	if err != nil {
		return err
	}
	began, err := p.start()
	if err != nil {
		return err
	}
	end, err := over(began)
	if err != nil {
		return fmt.Errorf("%w; its log ends:\n%s", err, p.tail())
	}
	// Without rules at all connections may work before the program says that it is done.
	if _, err := p.waitSynced(ctx, began); err != nil {
		return err
	}
	if err := p.cg.Settle(ctx, settled); err != nil {
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

// sample is a goal for some Services: the first, the last and others at random.
func (b *bench) sample() []goal {
	goals := []goal{serviceGoal(0), serviceGoal(b.size - 1)}
	for range 30 {
		goals = append(goals, serviceGoal(rand.IntN(b.size)))
	}
	return goals
}
