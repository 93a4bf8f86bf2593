package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"edgeway/test/bench/kit"
)

type options struct {
	hosts, services, endpoints int
	rate                       int // changes per second
	rest, busy                 time.Duration
	// down is the downtime of the API server, and back is how long the command counts requests after the restart.
	down, back time.Duration
	json       string
}

func main() {
	maybeHosts()
	kit.Main("fleet", func(ctx context.Context, args []string) error {
		opts, err := parse(args)
		if err != nil {
			return err
		}
		if os.Getuid() != 0 {
			return errors.New("network namespaces and control groups need root")
		}
		r := results{kit.Figures{}}
		if err := measureAll(ctx, opts, r); err != nil {
			return err
		}
		r.print(os.Stdout)
		return r.Save(opts.json)
	})
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.IntVar(&o.hosts, "hosts", 200, "the number of hosts")
	flags.IntVar(&o.services, "services", 1000, "the number of Services")
	flags.IntVar(&o.endpoints, "endpoints", 5, "endpoints of each Service")
	flags.IntVar(&o.rate, "rate", 10, "changes of endpoints in a second")
	flags.DurationVar(&o.rest, "rest", 2*time.Minute, "the time at rest")
	flags.DurationVar(&o.busy, "busy", time.Minute, "the time in which endpoints change")
	flags.DurationVar(&o.down, "down", 10*time.Second, "the time without the API server")
	flags.DurationVar(&o.back, "back", time.Minute, "the time in which requests are counted after that")
	flags.StringVar(&o.json, "json", "fleet.json", "the `file` for all figures")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.hosts < 1 || o.services < tenths || o.endpoints < 1 || o.rate < 1 || o.down < 0 || min(o.rest, o.busy, o.back) < time.Second {
		return o, fmt.Errorf("there must be %d Services, every other count at least 1, and every time at least a second", tenths)
	}
	return o, nil
}
