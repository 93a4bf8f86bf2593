package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"edgeway/test/bench/kit"
)

// options are the command line.
type options struct {
	mode      mode
	edgeway   string
	kubeProxy string
	// previous is an earlier edgeway that is measured in place of kube-proxy.
	previous string
	// manifests has Edgeway read files instead of an API server.
	manifests bool
	// floor has a bare program measured as well.
	floor     bool
	sizes     []int
	peerLimit int
	rounds    int
	changes   int
	burst     int
	endpoints int
	// firstSyncLimit makes a program slow.
	firstSyncLimit time.Duration
	// patience is the hosts'.
	patience time.Duration
	// strict makes a bound that does not hold a fault.
	strict bool
	json   string
	plot   string
	// figures are of an earlier run, to be drawn; nothing is measured then.
	figures string
	logs    string
}

func main() {
	maybeFloor()
	kit.Main("bench", func(ctx context.Context, args []string) error {
		opts, err := parse(args)
		if err != nil {
			return err
		}
		return runBench(ctx, opts, os.Stdout)
	})
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.edgeway, "edgeway", "", "the edgeway `binary`; empty: build it")
	flags.StringVar(&o.kubeProxy, "kube-proxy", "", "a kube-proxy `binary` to measure beside it; empty: none")
	flags.StringVar(&o.previous, "previous", "", "an earlier edgeway `binary` to measure beside it instead of kube-proxy")
	flags.BoolVar(&o.manifests, "manifests", false, "let Edgeway read files; no API server, kube-proxy or bare program then")
	flags.BoolVar(&o.floor, "floor", true, "in nftables mode, measure changes, new Services and bursts of a bare program, too")
	flags.IntVar(&o.peerLimit, "peer-limit", 10000, "the largest `size` that kube-proxy is measured at; it takes minutes at 10,000")
	flags.IntVar(&o.rounds, "rounds", 3, "how often first sync and restart are measured; the median counts")
	flags.IntVar(&o.changes, "changes", 12, "how many single changes, new Services and bursts are measured")
	flags.IntVar(&o.burst, "burst", 200, "the changes of a burst")
	flags.IntVar(&o.endpoints, "endpoints", 5, "endpoints of each Service, at most 8")
	flags.DurationVar(&o.firstSyncLimit, "first-sync-limit", 30*time.Second, "a program whose first sync takes longer has no further one")
	flags.DurationVar(&o.patience, "patience", usualPatience, "how long one connection may take that is tried until it works: longer on a slow machine")
	flags.BoolVar(&o.strict, "strict", false, "fail unless each bound was measured and holds")
	flags.StringVar(&o.json, "json", "bench.json", "the `file` for all figures")
	flags.StringVar(&o.plot, "plot", "", "a `file` for all figures as plots, in SVG; empty: none")
	flags.StringVar(&o.figures, "figures", "", "a `file` that -json wrote: draw -plot of it, and measure nothing")
	flags.StringVar(&o.logs, "logs", "", "a `directory` to keep the programs' logs in; empty: they are removed")
	modeName := flags.String("mode", "nftables", "what both programs use: nftables, iptables-nft, iptables-legacy or ipvs")
	sizes := flags.String("sizes", "", "numbers of Services, ascending; empty: what the mode's bounds are about")
	err := flags.Parse(args)
	if err != nil {
		return o, err
	}
	if o.mode, err = findMode(*modeName); err != nil {
		return o, err
	}
	if *sizes == "" {
		*sizes = o.mode.sizes
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || len(o.sizes) > 0 && n <= o.sizes[len(o.sizes)-1] {
			return o, fmt.Errorf("sizes %q: want ascending numbers", *sizes)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.endpoints < 1 || o.endpoints > maxEndpoints || o.rounds < 1 || o.changes < 1 || o.burst < 1 {
		return o, fmt.Errorf("endpoints must be 1 to %d, and every count at least 1", maxEndpoints)
	}
	if o.patience <= 0 {
		return o, errors.New("without patience no connection is made")
	}
	if o.figures == "" && os.Getuid() != 0 {
		return o, fmt.Errorf("network namespaces and control groups need root")
	}
	return o, nil
}

// peer names what is measured beside Edgeway.
func (o options) peer() string {
	if o.previous != "" {
		return "previous " + oursName
	}
	return "kube-proxy"
}

// bounds judges a run.
func (o options) bounds(r results) []bound {
	if o.previous != "" {
		return r.previousBounds(o.sizes)
	}
	return o.mode.bounds(r)
}

// runBench measures everything and writes the tables to out.
func runBench(ctx context.Context, opts options, out io.Writer) error {
	if opts.figures != "" {
		figures, err := kit.Load(opts.figures)
		if err != nil {
			return err
		}
		return results{figures}.savePlot(opts)
	}
	// Where there is one processor, who asks an endpoint would hold up the endpoint's answer.
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	b, err := newBench(ctx, opts)
	if err != nil {
		return err
	}
	defer b.close()
	// What was measured before a fault is kept: a run may take an hour.
	if err = b.all(ctx); err == nil && opts.strict {
		err = judge(opts.bounds(b.results))
	}
	b.results.print(out, opts)
	return errors.Join(err, b.results.Save(opts.json), b.results.savePlot(opts))
}
