package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"edgeway/test/bench/kit"
)

type measure = kit.Measure

// The measures. Times are in seconds, sizes in bytes.
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

// measures returns all measures in the order of the table.
func measures() []measure {
	var all []measure
	for _, m := range []measure{firstSync, restart, change, newService, burst} {
		all = append(all, m, m.CPU())
	}
	return append(all, connection, resident, coldStart, coldStart.CPU())
}

// unit returns the divisor of a measure in the table, and its name.
func unit(m measure) (float64, string) {
	switch m {
	case resident:
		return 1 << 20, "MiB"
	case connection:
		return 1e-6, "µs"
	}
	return 1e-3, "ms"
}

// results holds every figure of a run.
type results struct{ kit.Figures }

func (r results) add(m measure, services int, program string, value float64) {
	r.Add(kit.Key{Measure: m, Services: services, Program: program}, value)
}

func (r results) median(m measure, services int, program string) (float64, bool) {
	return r.Median(kit.Key{Measure: m, Services: services, Program: program})
}

// bound is a limit of the ratio of our median to another one.
type bound struct {
	measure  measure
	services int
	of       string // the program that is compared with
	at       int    // its number of Services
	limit    float64
}

func beside(program string, services int, limit float64, all ...measure) []bound {
	var bounds []bound
	for _, m := range all {
		bounds = append(bounds, bound{m, services, program, services, limit})
	}
	return bounds
}

func nftablesBounds() []bound {
	const large = 10000
	var all []bound
	for _, m := range []measure{change, change.CPU(), newService, newService.CPU()} {
		all = append(all, bound{m, large, oursName, 100, 1.2}) // their number does not matter
	}
	all = append(all, beside(peerName, large, 1.0/50, change, change.CPU(), newService, newService.CPU())...)
	all = append(all, beside(peerName, large, 1.0/10, burst, burst.CPU())...)
	all = append(all, beside(peerName, large, 1.0/8, firstSync, restart)...)
	all = append(all, beside(peerName, large, 1.0/2, resident)...)
	all = append(all, beside(peerName, large, 1, connection)...)
	all = append(all, beside(floorName, large, 1.3, change)...)
	return append(all, beside(floorName, large, 1.5, newService)...)
}

func iptablesBounds(firstSyncLimit float64) []bound {
	const medium = 5000
	all := beside(peerName, medium, 1.0/3, change, change.CPU())
	all = append(all, beside(peerName, medium, firstSyncLimit, firstSync)...)
	return append(all, beside(peerName, medium, 1.0/2, resident)...)
}

func ipvsBounds() []bound {
	const medium = 5000
	all := beside(peerName, medium, 1.0/2, firstSync, resident)
	all = append(all, beside(peerName, medium, 1.0/50, change.CPU())...)
	all = append(all, beside(peerName, medium, 1.0/10, newService)...)
	return append(all, beside(peerName, medium, 1, connection)...)
}

// previousBounds wants no figure to be more than a tenth worse than that of an earlier edgeway.
func previousBounds(r results) []bound {
	var all []bound
	for _, m := range measures() {
		for _, services := range r.sizes() {
			if _, known := r.ratio(bound{measure: m, services: services, of: peerName, at: services}); known {
				all = append(all, beside(peerName, services, 1.1, m)...)
			}
		}
	}
	return all
}

// ratio returns the measured ratio of a bound, or false if one of its figures was not measured.
func (r results) ratio(b bound) (float64, bool) {
	return r.Ratio(kit.Key{Measure: b.measure, Services: b.services, Program: oursName},
		kit.Key{Measure: b.measure, Services: b.at, Program: b.of})
}

// holds is the verdict of a bound that holds.
const holds = "pass"

// verdict returns the columns of a bound: its name, the ratio and the verdict.
func (r results) verdict(b bound) (name, ratio, verdict string) {
	name = fmt.Sprintf("%s at %d, of the %s's", b.measure, b.services, b.of)
	if b.at != b.services {
		name = fmt.Sprintf("%s at %d, of our own at %d", b.measure, b.services, b.at)
	}
	value, known := r.ratio(b)
	switch {
	case !known:
		return name, "–", "not measured"
	case value <= b.limit:
		return name, part(value), holds
	}
	return name, part(value), "FAIL"
}

// judge fails for bounds that do not hold or were not measured.
func (r results) judge(bounds []bound) error {
	var all []error
	for _, b := range bounds {
		if name, ratio, verdict := r.verdict(b); verdict != holds {
			all = append(all, fmt.Errorf("%s: %s: %s", name, ratio, verdict))
		}
	}
	return errors.Join(all...)
}

// part prints a ratio: 1/20.0 if it is below a half.
func part(ratio float64) string {
	if ratio > 0 && ratio < 0.5 {
		return "1/" + kit.Short(1/ratio)
	}
	return kit.Short(ratio)
}

// print writes the figures and the bounds as two tables in Markdown.
func (r results) print(w io.Writer, opts options) {
	sizes := r.sizes()
	fmt.Fprintf(w, "Mode %s. Medians: %s / %s (ratio) / %s (ratio). %d endpoints for each Service; bursts of %d.\n\n",
		opts.mode.name, oursName, opts.peer(), floorName, endpoints, burstSize)
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
		if strings.Trim(row.String(), " |") != "" { // not measured in this mode
			_, unit := unit(m)
			fmt.Fprintf(w, "| %s, %s |%s\n", m, unit, &row)
		}
	}
	fmt.Fprint(w, "\n| bound | measured | at most | |\n|---|---:|---:|---|\n")
	for _, b := range opts.bounds(r) {
		name, ratio, verdict := r.verdict(b)
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", name, ratio, part(b.limit), verdict)
	}
}

// cell returns the medians of a measure: ours, the peer's and the floor's, up to the last that was measured.
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
		text := kit.Short(median / divisor)
		if ratio, ok := r.ratio(bound{measure: m, services: services, of: program, at: services}); ok && i > 0 {
			text += fmt.Sprintf(" (%s)", part(ratio))
		}
		parts, last = append(parts, text), i+1
	}
	return strings.Join(parts[:last], " / ")
}
