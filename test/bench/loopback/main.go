// Command loopback compares Edgeway's relay for NodePorts on loopback with systemd-socket-proxyd and with an earlier
// version of Edgeway. The command measures the throughput with 1, 50 and 1,000 streams, and the number of new
// connections per second.
//
// scripts/bench-loopback starts this command in a network namespace. All programs run at the same time and relay to the
// same endpoint. The command measures the programs in turn, so other load on the machine affects all of them equally.
// Edgeway runs as an unprivileged user with CAP_NET_ADMIN as its only capability, as in units/edgeway.service. The
// column "direct" contains the results without a relay. The process that runs the command is both the client and the
// endpoint.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

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
		o := options{streams: []int{1, 50, 1000}, connections: 4000, window: time.Second}
		flags := flag.NewFlagSet("loopback", flag.ContinueOnError)
		flags.StringVar(&o.edgeway, "edgeway", "",
			"the edgeway `binary` (default: the benchmark builds edgeway from this repository)")
		flags.StringVar(&o.previous, "previous", "", "another edgeway `binary` for comparison")
		flags.StringVar(&o.json, "json", "loopback.json", "the `file` that receives all results")
		flags.IntVar(&o.rounds, "rounds", 9, "the number of times to repeat each measurement; the result is the median")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return run(ctx, o, os.Stdout)
	})
}

// step is one measurement: the throughput of a number of streams in one direction, or the rate of new connections if
// streams is 0.
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

// run performs all measurements and writes the medians to out as a Markdown table.
func run(ctx context.Context, o options, out io.Writer) error {
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
				r := l.relays[(i+round)%len(l.relays)] // each round starts with a different relay
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

// print writes a column of medians for each relay, and the ratios of Edgeway's medians to those of the other relays.
func (l *lab) print(w io.Writer, o options, figures kit.Figures) {
	fmt.Fprint(w, "| |")
	for _, r := range l.relays {
		fmt.Fprintf(w, " %s |", r.name)
	}
	peers := l.relays[2:] // all relays except "direct" and "edgeway"
	for _, r := range peers {
		fmt.Fprintf(w, " edgeway : %s |", r.name)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" ---: |", len(l.relays)+len(peers)))
	for _, s := range o.steps() {
		fmt.Fprintf(w, "| %s |", s.name)
		for _, r := range l.relays {
			median, _ := figures.Median(kit.Key{Measure: s.name, Program: r.name})
			fmt.Fprintf(w, " %s |", kit.FormatShort(median))
		}
		for _, r := range peers {
			ours := kit.Key{Measure: s.name, Program: "edgeway"}
			ratio, _ := figures.Ratio(ours, kit.Key{Measure: s.name, Program: r.name})
			fmt.Fprintf(w, " %.2f |", ratio)
		}
		fmt.Fprintln(w)
	}
}
