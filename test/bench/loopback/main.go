// Command loopback measures the relay of NodePorts on loopback beside systemd-socket-proxyd, and beside another
// edgeway binary if one is given: throughput with 1, 50 and 1,000 streams, and new connections per second.
//
// It needs root and a network namespace of its own (unshare --net): scripts/bench-loopback starts it so. All programs
// run at the same time, relay to the same endpoint, and take turns, so that other work of the machine affects all of
// them. Edgeway runs as an unprivileged user with CAP_NET_ADMIN alone, as in units/edgeway.service: without
// CAP_SYS_RESOURCE the kernel bounds the memory of its pipes. The column "direct" is the same load without a relay.
// Client and endpoint are this process; both discard bytes in the kernel.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/test/bench/kit"
)

type options struct {
	edgeway, previous, json string
	rounds, connections     int
	streams                 []int
	window                  time.Duration
}

func main() {
	kit.Main("loopback", func(ctx context.Context, args []string) error {
		o := options{streams: []int{1, 50, 1000}}
		flags := flag.NewFlagSet("loopback", flag.ContinueOnError)
		flags.StringVar(&o.edgeway, "edgeway", "", "the edgeway `binary`; built from this tree if empty")
		flags.StringVar(&o.previous, "previous", "", "another edgeway `binary`, measured beside it")
		flags.StringVar(&o.json, "json", "loopback.json", "the `file` for all figures")
		flags.IntVar(&o.rounds, "rounds", 9, "turns of each program at each measure; the median counts")
		flags.IntVar(&o.connections, "connections", 4000, "connections in each turn")
		flags.DurationVar(&o.window, "window", time.Second, "the time for which a turn measures throughput")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return run(ctx, o, os.Stdout)
	})
}

// step is one measure: a number of streams in one direction, or new connections if streams is 0.
type step struct {
	name    kit.Measure
	streams int
	up      bool
}

func (o options) steps() []step {
	all := []step{{name: "new connections, 1/s"}}
	for _, n := range o.streams {
		all = append(all, step{kit.Measure(fmt.Sprintf("%d streams down, GB/s", n)), n, false},
			step{kit.Measure(fmt.Sprintf("%d streams up, GB/s", n)), n, true})
	}
	return all
}

// run measures everything and writes the medians to out as a Markdown table.
func run(ctx context.Context, o options, out io.Writer) error {
	// The limit of units/edgeway.service, or the highest that is allowed here. Children inherit it.
	limit := unix.Rlimit{Cur: 524288, Max: 524288}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return fmt.Errorf("limit of file descriptors: %w", err)
		}
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return fmt.Errorf("limit of file descriptors: %w", err)
		}
	}
	l, err := newLab(ctx, o)
	if err != nil {
		return err
	}
	defer l.close()
	figures := kit.Figures{}
	for round := range o.rounds {
		for _, s := range o.steps() {
			fmt.Fprintf(os.Stderr, "round %d: %s\n", round+1, s.name)
			for i := range l.relays {
				r := l.relays[(i+round)%len(l.relays)] // each is first in turn
				if err := ctx.Err(); err != nil {
					return err
				}
				value, err := l.measure(o, s, r)
				if err != nil {
					return fmt.Errorf("%s of %s: %w", s.name, r.name, err)
				}
				figures.Add(kit.Key{Measure: s.name, Program: r.name}, value)
			}
		}
	}
	l.print(out, o, figures)
	return figures.Save(o.json)
}

func (l *lab) measure(o options, s step, r *relay) (value float64, err error) {
	if s.streams == 0 {
		value, err = connect(r.addr, o.connections)
	} else {
		value, err = l.endpoint.transfer(r.addr, s.streams, s.up, o.window)
		value /= 1e9
	}
	if err == nil {
		err = l.endpoint.drained()
	}
	return value, err
}

// print writes a column for each program, and our ratios to the others.
func (l *lab) print(w io.Writer, o options, figures kit.Figures) {
	names := make([]string, 0, len(l.relays))
	for _, r := range l.relays {
		names = append(names, r.name)
	}
	peers := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "direct" || n == "edgeway" })
	fmt.Fprintf(w, "| | %s |", strings.Join(names, " | "))
	for _, p := range peers {
		fmt.Fprintf(w, " edgeway : %s |", p)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" ---: |", len(names)+len(peers)))
	for _, s := range o.steps() {
		fmt.Fprintf(w, "| %s |", s.name)
		for _, n := range names {
			median, _ := figures.Median(kit.Key{Measure: s.name, Program: n})
			fmt.Fprintf(w, " %s |", kit.Short(median))
		}
		for _, p := range peers {
			ratio, _ := figures.Ratio(kit.Key{Measure: s.name, Program: "edgeway"}, kit.Key{Measure: s.name, Program: p})
			fmt.Fprintf(w, " %.2f |", ratio)
		}
		fmt.Fprintln(w)
	}
}
