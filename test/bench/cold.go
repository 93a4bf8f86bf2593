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

// coldStart starts Edgeway on a host without rules while the API server is down: all it has is what
// it saw before.
func (b *bench) coldStart(ctx context.Context) error {
	if err := b.turn(ctx, b.ours); err != nil {
		return err
	}
	b.cluster.StopAPIServer()
	for range b.opts.rounds {
		if err := b.clear(ctx, b.ours); err != nil {
			return err
		}
		began, err := b.ours.start()
		if err != nil {
			return err
		}
		end, err := b.ours.host.reach(ctx, b.sample())
		if err != nil {
			return fmt.Errorf("%w; the log ends:\n%s", err, b.ours.tail())
		}
		planned, err := b.ours.planned(ctx, began)
		if err != nil {
			return err
		}
		b.results.add(coldStart, b.size, oursName, end.Sub(began).Seconds())
		b.results.add(coldPlanned, b.size, oursName, planned.Sub(began).Seconds())
	}
	return b.cluster.StartAPIServer(ctx)
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
