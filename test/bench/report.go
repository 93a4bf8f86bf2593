package main

import (
	"fmt"
	"io"
	"strings"

	"edgeway/test/bench/kit"
)

// print writes the figures and the bounds as two tables in Markdown. A cell holds medians: ours, the peer's, and our part
// of the peer's; then the floor's in the same way, where it was measured.
func (r results) print(w io.Writer, opts options) {
	sizes := append([]int{fewServices}, opts.sizes...)
	fmt.Fprintf(w, "Mode %s. Medians: %s / %s (ratio) / %s (ratio). %d endpoints for each Service",
		opts.mode.name, oursName, opts.peer(), floorName, opts.endpoints)
	if opts.mode.whole {
		fmt.Fprintf(w, "; bursts of %d", opts.burst)
	}
	fmt.Fprint(w, ".\n\n")
	fmt.Fprint(w, "| Services |")
	for _, s := range sizes {
		fmt.Fprintf(w, " %d |", s)
	}
	fmt.Fprintln(w, "\n|---|"+strings.Repeat("---:|", len(sizes)))
	for _, m := range measures() {
		var row strings.Builder
		for _, s := range sizes {
			fmt.Fprintf(&row, " %s |", r.cell(m, s))
		}
		// No row for what is not measured in this mode.
		if strings.Trim(row.String(), " |") != "" {
			_, unit := unit(m)
			fmt.Fprintf(w, "| %s, %s |%s\n", m, unit, &row)
		}
	}
	fmt.Fprint(w, "\n| bound | measured | at most | |\n|---|---:|---:|---|\n")
	for _, b := range opts.bounds(r) {
		limit := b
		limit.known = true
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", b.name, b.format(b.value), limit.format(b.limit), b.verdict())
	}
}

func (r results) cell(m measure, services int) string {
	divisor, _ := unit(m)
	var parts []string
	last := 0 // what comes after the last figure is left out
	for i, program := range []string{oursName, peerName, floorName} {
		median, ok := r.median(m, services, program)
		if !ok {
			parts = append(parts, "–")
			continue
		}
		part := kit.Short(median / divisor)
		if ratio, ok := r.ratio(m, services, services, program); ok && i > 0 {
			part += fmt.Sprintf(" (%s)", bound{known: true}.format(ratio))
		}
		parts, last = append(parts, part), i+1
	}
	return strings.Join(parts[:last], " / ")
}
