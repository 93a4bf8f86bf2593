package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// coldStart starts Edgeway, and an earlier one if that is the peer, on a host without rules while the API server is
// down: all it has is what it saw before.
func (b *bench) coldStart(ctx context.Context) error {
	programs := []*program{b.ours}
	if b.opts.previous != "" {
		programs = append(programs, b.peer)
	}
	for _, p := range programs {
		if err := b.turn(ctx, p); err != nil {
			return err
		}
	}
	b.cluster.StopAPIServer()
	for round := range b.opts.rounds {
		for _, p := range turned(programs, round) {
			if err := b.turn(ctx, p); err != nil {
				return err
			}
			if err := b.startCold(ctx, p); err != nil {
				return err
			}
		}
	}
	return b.cluster.StartAPIServer(ctx)
}

func (b *bench) startCold(ctx context.Context, p *program) error {
	if err := b.clear(ctx, p); err != nil {
		return err
	}
	began, err := p.start()
	if err != nil {
		return err
	}
	end, err := p.host.reach(ctx, b.sample())
	if err != nil {
		return fmt.Errorf("%w; the log ends:\n%s", err, p.tail())
	}
	planned, err := p.planned(ctx, began)
	if err != nil {
		return err
	}
	b.results.add(coldStart, b.size, p.name, end.Sub(began).Seconds())
	b.results.add(coldPlanned, b.size, p.name, planned.Sub(began).Seconds())
	return nil
}

var fullSync = regexp.MustCompile(`^time=(\S+) .*msg="full sync done" stage=nftables .*duration=(\S+)`)

// planned gives the moment at which the plan of the first full sync after began was handed to the
// backend, as the log tells it.
func (p *program) planned(ctx context.Context, began time.Time) (time.Time, error) {
	if _, err := p.waitSynced(ctx, began); err != nil {
		return time.Time{}, err
	}
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return time.Time{}, fmt.Errorf("log of %s: %w", p.name, err)
	}
	for line := range strings.Lines(string(raw)) {
		m := fullSync.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		// The log's times are in milliseconds, and may lie that much before began.
		end, errTime := time.Parse(time.RFC3339Nano, m[1])
		took, errDuration := time.ParseDuration(m[2])
		if err := errors.Join(errTime, errDuration); err != nil {
			return end, fmt.Errorf("log of %s: %w", p.name, err)
		}
		if end.After(began) {
			return end.Add(-took), nil
		}
	}
	return time.Time{}, fmt.Errorf("log of %s: no full sync in it", p.name)
}
