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
	// downtime is the time between the API server's exit and its restart. countTime is the duration for which the
	// command counts requests after the restart.
	downtime, countTime time.Duration
	json                string
}

func main() {
	runHostsProcess()
	kit.Main("fleet", func(ctx context.Context, args []string) error {
		opts, err := parse(args)
		if err != nil {
			return err
		}
		if os.Getuid() != 0 {
			return errors.New("network namespaces and control groups require root")
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
	flags.IntVar(&o.endpoints, "endpoints", 5, "the number of endpoints per Service")
	flags.IntVar(&o.rate, "rate", 10, "endpoint changes per second")
	flags.DurationVar(&o.rest, "rest", 2*time.Minute, "how long to measure idle hosts")
	flags.DurationVar(&o.busy, "busy", time.Minute, "how long the benchmark changes endpoints")
	flags.DurationVar(&o.downtime, "down", 10*time.Second, "how long the API server is down")
	flags.DurationVar(&o.countTime, "back", time.Minute,
		"how long to count requests after the API server has restarted")
	flags.StringVar(&o.json, "json", "fleet.json", "the `file` that receives all results")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.hosts < 1 || o.services < labelValueCount || o.endpoints < 1 || o.rate < 1 || o.downtime < 0 ||
		min(o.rest, o.busy, o.countTime) < time.Second {
		return o, fmt.Errorf("want at least %d Services, at least 1 for every other count, "+
			"and at least 1s for -rest, -busy and -back", labelValueCount)
	}
	return o, nil
}
