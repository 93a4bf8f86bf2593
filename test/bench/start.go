package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"edgeway/test/bench/kit"
)

// measureStart measures one of these kinds of start:
//   - firstSync: on a host without rules, until connections to a sample of all Services work;
//   - restart: on a host that has all its rules, until the program reports a sync;
//   - coldStart: like firstSync, but without the API server, from the state that Edgeway saved.
func (b *bench) measureStart(ctx context.Context, p *program, what measure) error {
	if err := p.stop(); err != nil {
		return err
	}
	if what != restart {
		if err := b.reset(ctx, p); err != nil {
			return err
		}
	}
	if what == firstSync {
		if err := os.RemoveAll(p.file(stateDir)); err != nil {
			return fmt.Errorf("state of %s: %w", p.name, err)
		}
	}
	return b.recordRun(ctx, p, what, func() (time.Duration, error) {
		began, err := p.start()
		if err != nil {
			return 0, err
		}
		if what == restart {
			end, err := p.waitSynced(ctx, began)
			return end.Sub(began), err
		}
		end, err := p.host.reach(ctx, b.sample())
		if err == nil {
			// Connections may succeed before the program's first sync is complete.
			_, err = p.waitSynced(ctx, began)
		}
		return end.Sub(began), err
	})
}

// measureColdStarts measures how long Edgeway and an earlier version of it take to start without the API server.
// measureColdStarts skips kube-proxy, which saves no state.
func (b *bench) measureColdStarts(ctx context.Context) error {
	programs := []*program{b.ours}
	if b.opts.previous != "" {
		programs = append(programs, b.peer)
	}
	for _, p := range programs {
		if err := b.switchTo(ctx, p); err != nil { // the program must first save its state
			return err
		}
	}
	b.cluster.StopAPIServer()
	err := b.turns(ctx, b.opts.rounds, programs, func(ctx context.Context, p *program) error {
		return b.measureStart(ctx, p, coldStart)
	})
	if err != nil {
		return err
	}
	return b.cluster.StartAPIServer(ctx)
}

func (b *bench) reset(ctx context.Context, p *program) error {
	if b.opts.mode.name == ipvsName {
		// All network namespaces share the kernel's table of IPVS virtual servers. The kernel does not immediately
		// clear the virtual servers of a deleted network namespace.
		if err := p.run("ipvsadm", "--clear"); err != nil {
			return err
		}
	}
	if err := b.lab.resetHost(ctx, p.host); err != nil {
		return err
	}
	return kit.Sleep(ctx, time.Second) // the kernel frees the rules in the background
}

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
	return p.stop()
}

func (b *bench) residentMemory(ctx context.Context, p *program) error {
	// Edgeway returns memory to the kernel a few seconds after a full sync.
	if err := p.cg.WaitIdle(ctx, 5*time.Second); err != nil {
		return err
	}
	bytes, err := p.residentBytes()
	if err != nil {
		return err
	}
	b.results.add(resident, b.size, p.name, bytes)
	return nil
}

// sample returns a goal for the first Service, a goal for the last Service, and goals for 30 random Services.
func (b *bench) sample() []goal {
	goals := []goal{serviceGoal(0), serviceGoal(b.size - 1)}
	for range 30 {
		goals = append(goals, serviceGoal(rand.IntN(b.size)))
	}
	return goals
}
