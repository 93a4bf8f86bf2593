package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"edgeway/test/bench/kit"
)

// options are the command line.
type options struct {
	edgeway     string
	rounds      int
	window      time.Duration
	connections int
	idle        int
	json        string
}

func main() {
	maybeServe()
	kit.Main("loopback", func(ctx context.Context, args []string) error {
		opts, err := parse(args)
		if err != nil {
			return err
		}
		return runBench(ctx, opts, os.Stdout)
	})
}

// maybeServe is the endpoint, when this process was started as that.
func maybeServe() {
	if len(os.Args) == 2 && os.Args[1] == endpointCommand {
		kit.Exit("endpoint", serveEndpoint(endpointAddr))
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("loopback", flag.ContinueOnError)
	flags.StringVar(&o.edgeway, "edgeway", "", "the edgeway `binary`; empty: build it")
	flags.IntVar(&o.rounds, "rounds", 9, "how often each program has its turn at each measure; the median counts")
	flags.DurationVar(&o.window, "window", time.Second, "how long throughput is measured in each turn")
	flags.IntVar(&o.connections, "connections", 4000, "connections in each turn")
	flags.IntVar(&o.idle, "idle", 10000, "idle connections; fewer where the limit of file descriptors does not allow them")
	flags.StringVar(&o.json, "json", "loopback.json", "the `file` for all figures")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.rounds < 1 || o.connections < 1 || o.idle < 1 || o.window <= 0 {
		return o, errors.New("every count must be at least 1")
	}
	if os.Getuid() != 0 {
		return o, errors.New("network namespaces and control groups need root")
	}
	return o, nil
}

// runBench measures everything and writes the tables to out.
func runBench(ctx context.Context, opts options, out io.Writer) error {
	b, err := newBench(ctx, opts)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.all(ctx); err != nil {
		return err
	}
	b.results.print(out, b.relays)
	return b.results.Save(opts.json)
}
