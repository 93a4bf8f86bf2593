package main

import (
	"fmt"
	"io"
	"strings"

	"edgeway/test/bench/kit"
)

type measure = kit.Measure

// Times are in seconds, and sizes are in bytes.
const (
	firstSync  measure = "first sync"
	restart    measure = "restart, nothing changed"
	coldStart  measure = "start without API"
	change     measure = "one change"
	newService measure = "new Service"
	burst      measure = "burst of changes"
	connection measure = "new connection"
	resident   measure = "resident memory"
)

func measures() []measure {
	var all []measure
	for _, m := range []measure{firstSync, restart, change, newService, burst} {
		all = append(all, m, m.CPU())
	}
	return append(all, connection, resident, coldStart, coldStart.CPU())
}

// unit returns the divisor that converts results of the measure m to the unit in the table, and the name of this unit.
func unit(m measure) (float64, string) {
	switch m {
	case resident:
		return 1 << 20, "MiB"
	case connection:
		return 1e-6, "µs"
	}
	return 1e-3, "ms"
}

type results struct{ kit.Figures }

func (r results) add(m measure, services int, program string, value float64) {
	r.Add(kit.Key{Measure: m, Services: services, Program: program}, value)
}

func (r results) median(m measure, services int, program string) (float64, bool) {
	return r.Median(kit.Key{Measure: m, Services: services, Program: program})
}

// ratio returns Edgeway's median divided by another program's median, or false if one of the programs has no results.
func (r results) ratio(m measure, services int, other string) (float64, bool) {
	return r.Ratio(kit.Key{Measure: m, Services: services, Program: oursName},
		kit.Key{Measure: m, Services: services, Program: other})
}

// formatRatio formats a ratio, and writes a ratio below 0.5 as a fraction such as 1/20.0.
func formatRatio(ratio float64) string {
	if ratio > 0 && ratio < 0.5 {
		return "1/" + kit.FormatShort(1/ratio)
	}
	return kit.FormatShort(ratio)
}

func (r results) print(w io.Writer, opts options) {
	sizes := r.sizes()
	fmt.Fprintf(w, "Mode %s. Each cell contains the medians of %s / %s (ratio) / %s (ratio). "+
		"%d endpoints per Service; bursts of %d changes.\n\n",
		opts.mode.name, oursName, opts.peer(), floorName, endpointsPerService, burstSize)
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
		if strings.Trim(row.String(), " |") != "" { // skip rows that this mode does not measure
			_, unit := unit(m)
			fmt.Fprintf(w, "| %s, %s |%s\n", m, unit, &row)
		}
	}
}

// cell returns the table cell that lists the medians of Edgeway, the peer program and the floor program for a measure.
// The cell omits the last programs in the list if they have no results.
func (r results) cell(m measure, services int) string {
	divisor, _ := unit(m)
	var parts []string
	last := 0
	for i, program := range []string{oursName, peerName, floorName} {
		median, ok := r.median(m, services, program)
		if !ok {
			parts = append(parts, "–")
			continue
		}
		text := kit.FormatShort(median / divisor)
		if ratio, ok := r.ratio(m, services, program); ok && i > 0 {
			text += fmt.Sprintf(" (%s)", formatRatio(ratio))
		}
		parts, last = append(parts, text), i+1
	}
	return strings.Join(parts[:last], " / ")
}
