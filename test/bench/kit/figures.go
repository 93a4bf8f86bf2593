package kit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Measure names a measured quantity.
type Measure string

// CPU returns the Measure that names the CPU time used while m is measured.
func (m Measure) CPU() Measure { return m + ", CPU" }

// Key identifies results by measure, number of Services and program.
type Key struct {
	Measure  Measure
	Services int `json:",omitempty"` // 0 for measures that do not depend on the number of Services
	Program  string
}

// Figures holds the results of a run. Times are in seconds, and sizes are in bytes.
type Figures map[Key][]float64

// Add adds a result for a key.
func (f Figures) Add(k Key, value float64) { f[k] = append(f[k], value) }

// Median returns the median of a key's results. The bool is false if the key has no results.
func (f Figures) Median(k Key) (float64, bool) {
	values := slices.Sorted(slices.Values(f[k]))
	if len(values) == 0 {
		return 0, false
	}
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid], true
	}
	return (values[mid-1] + values[mid]) / 2, true
}

// Ratio returns the median for the key mine divided by the median for the key other. The bool is false if either median
// is missing or the divisor is not positive.
func (f Figures) Ratio(mine, other Key) (float64, bool) {
	value, ok := f.Median(mine)
	divisor, okOther := f.Median(other)
	return value / divisor, ok && okOther && divisor > 0
}

type entry struct {
	Key
	Median float64
	Values []float64 `json:",omitempty"` // omitted if the file contains only the median
}

// Load reads a file that Save wrote.
func Load(path string) (Figures, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	var all []entry
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("figures in %s: %w", path, err)
	}
	f := Figures{}
	for _, e := range all {
		if f[e.Key] = e.Values; len(e.Values) == 0 {
			f.Add(e.Key, e.Median)
		}
	}
	return f, nil
}

// Save writes all results as a JSON list, sorted by measure, number of Services and program.
func (f Figures) Save(path string) error {
	var all []entry
	for k, values := range f {
		median, _ := f.Median(k)
		all = append(all, entry{k, median, values})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Measure, b.Measure), cmp.Compare(a.Services, b.Services),
			cmp.Compare(a.Program, b.Program))
	})
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	return nil
}

// FormatShort formats a number with two decimal places, or with fewer if the number is at least 10.
func FormatShort(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
