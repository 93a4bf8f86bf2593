package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// bound is what a ratio, or a figure, must not exceed.
type bound struct {
	name  string
	value float64 // measured
	limit float64
	unit  string // empty: a ratio
	known bool   // false: not measured in this run
}

// The size that the bounds are about, and the one that growth is judged against.
const (
	boundSize = 10000
	smallSize = 100
)

// bounds judges a run.
func (r results) bounds() []bound {
	var all []bound
	versusPeer := func(m measure, limit float64) {
		value, known := r.ratio(m, boundSize, boundSize, peerName)
		all = append(all, bound{name: fmt.Sprintf("%s, of %s's", m, peerName), value: value, limit: limit, known: known})
	}
	growth := func(m measure) {
		value, known := r.ratio(m, boundSize, smallSize, oursName)
		all = append(all, bound{name: fmt.Sprintf("%s, of our own at %d", m, smallSize), value: value, limit: 1.2, known: known})
	}
	absolute := func(m measure, services int, limit float64) {
		value, known := r.median(m, services, oursName)
		divisor, unit := m.unit()
		all = append(all, bound{
			name: fmt.Sprintf("%s at %d", m, services), value: value / divisor, limit: limit / divisor, unit: unit, known: known,
		})
	}
	for _, m := range []measure{change, change.cpu(), newService, newService.cpu()} {
		versusPeer(m, 1.0/50)
		growth(m)
	}
	versusPeer(burst, 1.0/10)
	versusPeer(burst.cpu(), 1.0/10)
	versusPeer(firstSync, 1.0/8)
	versusPeer(restart, 1.0/8)
	versusPeer(kernelMemory, 1.0/5)
	versusPeer(resident, 1.0/2)
	absolute(resident, fewServices, 35e6)
	versusPeer(connection, 1)
	absolute(coldPlanned, boundSize, 1)
	if first, ok := r.median(firstSync, boundSize, oursName); ok {
		absolute(coldStart, boundSize, first)
	}
	return all
}

func (b bound) verdict() string {
	switch {
	case !b.known:
		return "not measured"
	case b.value <= b.limit:
		return "pass"
	}
	return "FAIL"
}

func (b bound) format(v float64) string {
	switch {
	case !b.known:
		return "–"
	case b.unit != "":
		return fmt.Sprintf("%s %s", short(v), b.unit)
	case v > 0 && v < 0.5:
		return fmt.Sprintf("1/%s", short(1/v))
	}
	return short(v)
}

// short prints three digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// print writes the figures and the bounds as two tables in Markdown. A cell holds medians: ours,
// the peer's, and our part of the peer's.
func (r results) print(w io.Writer, opts options) {
	sizes := append([]int{fewServices}, opts.sizes...)
	fmt.Fprintf(w, "Medians: %s / %s (ratio). %d endpoints for each Service; bursts of %d.\n\n", oursName, peerName, opts.endpoints, opts.burst)
	fmt.Fprint(w, "| Services |")
	for _, s := range sizes {
		fmt.Fprintf(w, " %d |", s)
	}
	fmt.Fprintln(w, "\n|---|"+strings.Repeat("---:|", len(sizes)))
	for _, m := range measures() {
		_, unit := m.unit()
		fmt.Fprintf(w, "| %s, %s |", m, unit)
		for _, s := range sizes {
			fmt.Fprintf(w, " %s |", r.cell(m, s))
		}
		fmt.Fprintln(w)
	}
	if !slices.Contains(opts.sizes, boundSize) {
		return
	}
	fmt.Fprintf(w, "\n| Bound at %d Services | measured | at most | |\n|---|---:|---:|---|\n", boundSize)
	for _, b := range r.bounds() {
		limit := b
		limit.known = true
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", b.name, b.format(b.value), limit.format(b.limit), b.verdict())
	}
}

func (r results) cell(m measure, services int) string {
	mine, ok := r.median(m, services, oursName)
	divisor, _ := m.unit()
	var out string
	if ok {
		out = short(mine / divisor)
	}
	if peer, ok := r.median(m, services, peerName); ok {
		out += " / " + short(peer/divisor)
	}
	if ratio, ok := r.ratio(m, services, services, peerName); ok {
		out += fmt.Sprintf(" (%s)", bound{known: true}.format(ratio))
	}
	return out
}
