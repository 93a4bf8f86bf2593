package main

import (
	"fmt"
	"io"
	"strings"

	"edgeway/test/bench/kit"
)

// bound is what one of our figures must be, as a part of a peer's.
type bound struct {
	measure measure
	peer    string
	ratio   float64
	limit   float64
	atLeast bool // the limit is the least; else it is the most
	known   bool // false: not measured in this run
}

// bounds judges a run: ahead of socket-proxyd and socat at everything that a client notices, not far
// behind HAProxy at throughput and connections, and no more memory than it.
func (r results) bounds() []bound {
	var all []bound
	compare := func(m measure, peer string, limit float64, atLeast bool) {
		value, known := r.ratio(m, peer)
		all = append(all, bound{measure: m, peer: peer, ratio: value, limit: limit, atLeast: atLeast, known: known})
	}
	for _, m := range append(throughputs(), rate) {
		compare(m, haproxyName, 0.95, true)
	}
	compare(idleMemory, haproxyName, 1, false)
	for _, peer := range []string{socketName, socatName} {
		for _, m := range append(throughputs(), rate) {
			compare(m, peer, 1, true)
		}
		for _, m := range []measure{p99(delay1), p99(delayGroup)} {
			compare(m, peer, 1, false)
		}
	}
	return all
}

func (b bound) verdict() string {
	switch {
	case !b.known:
		return "not measured"
	case b.atLeast && b.ratio >= b.limit, !b.atLeast && b.ratio <= b.limit:
		return "pass"
	}
	return "FAIL"
}

func (b bound) String() string {
	measured, limit := "–", "at most"
	if b.known {
		measured = kit.Short(b.ratio)
	}
	if b.atLeast {
		limit = "at least"
	}
	return fmt.Sprintf("| %s, of %s's | %s | %s %s | %s |", b.measure, b.peer, measured, limit, kit.Short(b.limit), b.verdict())
}

// print writes the medians and the bounds as two tables in Markdown.
func (r results) print(w io.Writer, relays []*relay) {
	fmt.Fprint(w, "| |")
	for _, p := range relays {
		fmt.Fprintf(w, " %s |", p.name)
	}
	fmt.Fprintln(w, "\n|---|"+strings.Repeat("---:|", len(relays)))
	for _, m := range measures() {
		divisor, unit := unit(m)
		fmt.Fprintf(w, "| %s, %s |", m, unit)
		for _, p := range relays {
			cell := ""
			if median, ok := r.median(m, p.name); ok {
				cell = kit.Short(median / divisor)
			}
			fmt.Fprintf(w, " %s |", cell)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "| idle connections for it |")
	for _, p := range relays {
		if p.cg != nil {
			fmt.Fprintf(w, " %d |", p.idle)
		} else {
			fmt.Fprint(w, " |")
		}
	}
	fmt.Fprint(w, "\n\n| bound | measured | wanted | |\n|---|---:|---:|---|\n")
	for _, b := range r.bounds() {
		fmt.Fprintln(w, b)
	}
}
