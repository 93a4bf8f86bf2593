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

// The measures. "Down" is from the endpoint to the client. Rates are per second, times in seconds,
// sizes in bytes; CPU times are per byte or per connection.
const (
	down1      measure = "1 stream down"
	up1        measure = "1 stream up"
	down8      measure = "8 streams down"
	up8        measure = "8 streams up"
	rate       measure = "new connections"
	delay1     measure = "first byte, 1 client"
	delayGroup measure = "first byte, 8 clients"
	idleMemory measure = "memory of an idle connection"
)

// cpu is the CPU time that goes with a measure.
func (m measure) cpu() measure { return m + ", CPU" }

// p99 is what 99 of 100 do not exceed; the measure itself is the median then.
func (m measure) p99() measure { return m + ", p99" }

func throughputs() []measure { return []measure{down1, up1, down8, up8} }

// measures is in the order of the table.
func measures() []measure {
	all := append(throughputs(), rate, delay1, delay1.p99(), delayGroup, delayGroup.p99())
	for _, m := range throughputs() {
		all = append(all, m.cpu())
	}
	return append(all, rate.cpu(), idleMemory)
}

// unit gives the divisor for a table and its name.
func (m measure) unit() (float64, string) {
	switch {
	case slices.Contains(throughputs(), m):
		return 1e9, "GB/s"
	case m == rate:
		return 1, "1/s"
	case m == rate.cpu():
		return 1e-6, "µs"
	case m == idleMemory:
		return 1, "bytes"
	case m == delay1, m == delay1.p99(), m == delayGroup, m == delayGroup.p99():
		return 1e-6, "µs"
	}
	return 1e-12, "ms/GB"
}

// results holds every figure of a run.
type results map[figure][]float64

type figure struct {
	Measure measure
	Program string
}

func (r results) add(m measure, program string, value float64) {
	f := figure{m, program}
	r[f] = append(r[f], value)
}

// median gives the middle figure; false: it was not measured.
func (r results) median(m measure, program string) (float64, bool) {
	values := slices.Sorted(slices.Values(r[figure{m, program}]))
	if len(values) == 0 {
		return 0, false
	}
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid], true
	}
	return (values[mid-1] + values[mid]) / 2, true
}

// ratio divides our median by a peer's; false: one of them was not measured.
func (r results) ratio(m measure, peer string) (float64, bool) {
	mine, ok := r.median(m, oursName)
	other, okOther := r.median(m, peer)
	return mine / other, ok && okOther && other > 0
}

// save writes all figures as JSON: a list sorted by measure and program.
func (r results) save(path string) error {
	type entry struct {
		figure
		Median float64
		Values []float64
	}
	var all []entry
	for f, values := range r {
		median, _ := r.median(f.Measure, f.Program)
		all = append(all, entry{f, median, values})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Measure, b.Measure), cmp.Compare(a.Program, b.Program))
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
