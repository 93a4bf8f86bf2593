package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"edgeway/test/bench/kit"
)

type options struct {
	mode                         mode
	edgeway, kubeProxy, previous string
	sizes                        []int
	peerLimit, rounds, changes   int
	patience                     time.Duration
	json, plot, logs             string
}

func main() {
	runFloorProcess()
	kit.Main("bench", func(ctx context.Context, args []string) error {
		opts, err := parse(args)
		if err != nil {
			return err
		}
		if os.Getuid() != 0 {
			return errors.New("network namespaces and control groups require root")
		}
		return run(ctx, opts, os.Stdout)
	})
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.edgeway, "edgeway", "",
		"the edgeway `binary` (default: the benchmark builds edgeway from this repository)")
	flags.StringVar(&o.kubeProxy, "kube-proxy", "", "a kube-proxy `binary` for comparison")
	flags.StringVar(&o.previous, "previous", "", "an earlier edgeway `binary` for comparison instead of kube-proxy")
	flags.IntVar(&o.peerLimit, "peer-limit", 10000, "the largest `number` of Services with which to measure kube-proxy")
	flags.IntVar(&o.rounds, "rounds", 3, "the number of times to measure each kind of start; the result is the median")
	flags.IntVar(&o.changes, "changes", 12,
		"how many single changes, new Services and bursts to measure; each result is the median")
	flags.DurationVar(&o.patience, "patience", 2*time.Millisecond, "the timeout of each connection attempt")
	flags.StringVar(&o.json, "json", "bench.json", "the `file` that receives all results")
	flags.StringVar(&o.plot, "plot", "", "an SVG `file` that receives plots of all results")
	flags.StringVar(&o.logs, "logs", "", "a `directory` for the programs' logs")
	modeName := flags.String("mode", "nftables",
		"the proxy mode of both programs: nftables, iptables-nft, iptables-legacy or ipvs")
	sizes := flags.String("sizes", "",
		"ascending numbers of Services, separated by commas (the default depends on the mode)")
	err := flags.Parse(args)
	if err != nil {
		return o, err
	}
	if o.mode, err = findMode(*modeName); err != nil {
		return o, err
	}
	for _, binary := range []string{o.edgeway, o.kubeProxy, o.previous} {
		// If the program did not exist, the benchmark would wait for it forever.
		if _, err := exec.LookPath(binary); binary != "" && err != nil {
			return o, fmt.Errorf("program %q: %w", binary, err)
		}
	}
	if *sizes == "" {
		*sizes = o.mode.sizes
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n <= smallHostServices || len(o.sizes) > 0 && n <= o.sizes[len(o.sizes)-1] {
			return o, fmt.Errorf("sizes %q: want ascending numbers above %d", *sizes, smallHostServices)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.rounds < 1 || o.changes < 1 || o.patience <= 0 {
		return o, errors.New("-rounds, -changes and -patience must be above 0")
	}
	return o, nil
}

func (o options) peer() string {
	if o.previous != "" {
		return "previous " + oursName
	}
	return "kube-proxy"
}

// run performs all measurements and writes tables of the results to out. If a measurement fails, run still writes the
// results of the earlier measurements.
func run(ctx context.Context, opts options, out io.Writer) error {
	// This process runs both the client and the endpoints. With only one CPU, the client would delay the endpoints'
	// responses.
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	b, err := newBench(ctx, opts)
	if err != nil {
		return err
	}
	defer b.close()
	err = b.measureAll(ctx)
	b.results.print(out, opts)
	return errors.Join(err, b.results.Save(opts.json), b.results.savePlot(opts))
}
