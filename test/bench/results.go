package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// measure is what a figure is about.
type measure string

// The measures, in the order of the table. Times are in seconds, sizes in bytes.
const (
	firstSync    measure = "first sync"
	restart      measure = "restart, nothing changed"
	change       measure = "one change"
	newService   measure = "new Service"
	burst        measure = "burst of changes"
	connection   measure = "new connection"
	resident     measure = "resident memory"
	kernelMemory measure = "kernel memory"
	coldPlanned  measure = "start without API, planned"
	coldStart    measure = "start without API"
)

// cpu is the CPU time that goes with a measure.
func (m measure) cpu() measure { return m + ", CPU" }

func measures() []measure {
	return []measure{
		firstSync, firstSync.cpu(), restart, restart.cpu(), change, change.cpu(), newService, newService.cpu(),
		burst, burst.cpu(), connection, resident, kernelMemory, coldPlanned, coldStart,
	}
}

// unit gives the divisor for a table and its name.
func (m measure) unit() (float64, string) {
	switch m {
	case resident, kernelMemory:
		return 1 << 20, "MiB"
	case connection:
		return 1e-6, "µs"
	}
	return 1e-3, "ms"
}

// results holds every figure of a run.
type results map[figure][]float64

type figure struct {
	Measure  measure
	Services int
	Program  string
}

func (r results) add(m measure, services int, program string, value float64) {
	f := figure{m, services, program}
	r[f] = append(r[f], value)
}

// median gives the middle figure; false: it was not measured.
func (r results) median(m measure, services int, program string) (float64, bool) {
	values := slices.Sorted(slices.Values(r[figure{m, services, program}]))
	if len(values) == 0 {
		return 0, false
	}
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid], true
	}
	return (values[mid-1] + values[mid]) / 2, true
}

// ratio divides our median by another figure's; false: one of them was not measured.
func (r results) ratio(m measure, services int, otherServices int, otherProgram string) (float64, bool) {
	mine, ok := r.median(m, services, oursName)
	other, okOther := r.median(m, otherServices, otherProgram)
	return mine / other, ok && okOther && other > 0
}

// save writes all figures as JSON: a list sorted by measure, size and program.
func (r results) save(path string) error {
	type entry struct {
		figure
		Median float64
		Values []float64
	}
	var all []entry
	for f, values := range r {
		median, _ := r.median(f.Measure, f.Services, f.Program)
		all = append(all, entry{f, median, values})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Measure, b.Measure), cmp.Compare(a.Services, b.Services), cmp.Compare(a.Program, b.Program))
	})
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding of the results: %w", err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}
