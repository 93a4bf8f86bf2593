package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"edgeway/test/bench/kit"
)

// options are the command line.
type options struct {
	hosts, services, endpoints int
	// rate is how many changes a second there are while endpoints change.
	rate       int
	rest, busy time.Duration
	// down is how long the API server is away, back how long it is watched from then on.
	down, back time.Duration
	json, plot string
	// figures are of an earlier run, to be drawn; nothing is measured then.
	figures string
}

func main() {
	maybeHosts()
	kit.Main("fleet", func(ctx context.Context, args []string) error {
		opts, err := parse(args)
		if err != nil {
			return err
		}
		return runFleet(ctx, opts, os.Stdout)
	})
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.IntVar(&o.hosts, "hosts", 200, "how many hosts there are")
	flags.IntVar(&o.services, "services", 1000, "how many Services there are")
	flags.IntVar(&o.endpoints, "endpoints", 5, "endpoints of each Service")
	flags.IntVar(&o.rate, "rate", 10, "changes of endpoints in a second")
	flags.DurationVar(&o.rest, "rest", 2*time.Minute, "how long the hosts are measured at rest")
	flags.DurationVar(&o.busy, "busy", time.Minute, "how long endpoints change")
	flags.DurationVar(&o.down, "down", 10*time.Second, "how long the API server is away")
	flags.DurationVar(&o.back, "back", time.Minute, "how long requests are counted after that")
	flags.StringVar(&o.json, "json", "fleet.json", "the `file` for all figures")
	flags.StringVar(&o.plot, "plot", "", "a `file` for the requests after the restart as a plot, in SVG; empty: none")
	flags.StringVar(&o.figures, "figures", "", "a `file` that -json wrote: print its tables, draw -plot of it, and measure nothing")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.hosts < 1 || o.services < tenths || o.endpoints < 1 || o.rate < 1 || o.down < 0 || min(o.rest, o.busy, o.back) < time.Second {
		return o, fmt.Errorf("there must be %d Services, every other count at least 1, and every time at least a second", tenths)
	}
	if o.figures == "" && os.Getuid() != 0 {
		return o, errors.New("network namespaces and control groups need root")
	}
	return o, nil
}

// runFleet measures everything and writes the tables to out.
func runFleet(ctx context.Context, opts options, out io.Writer) (err error) {
	r := results{kit.Figures{}}
	if opts.figures == "" {
		err = measureAll(ctx, opts, r)
	} else {
		r.Figures, err = kit.Load(opts.figures)
	}
	if err != nil {
		return err
	}
	r.print(out)
	if opts.figures == "" {
		err = r.Save(opts.json)
	}
	return errors.Join(err, r.savePlot(opts.plot))
}
