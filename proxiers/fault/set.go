package fault

import (
	"fmt"
	"slices"
)

// Set collects the faults of the daemon's components.
type Set struct {
	parts []func() []Fault
	// ignoredIDs holds the IDs of notices that All omits.
	ignoredIDs []string
}

// Include adds a function that returns a component's faults. Call Include before the first call to All or IDs.
func (s *Set) Include(faults func() []Fault) { s.parts = append(s.parts, faults) }

// Ignore sets the IDs of the notices that All omits. Call Ignore before the first call to All or IDs.
func (s *Set) Ignore(ids ...string) { s.ignoredIDs = ids }

// All returns the faults of all components except ignored notices, worst first.
func (s *Set) All() (out []Fault) {
	for _, faults := range s.parts {
		out = append(out, faults()...)
	}
	out = slices.DeleteFunc(out, func(f Fault) bool { return f.Ignored(s.ignoredIDs) })
	Sort(out)
	return out
}

// maxPerKind is the maximum number of faults with the same ID and severity that Truncate returns.
const maxPerKind = 10

// Truncate returns the first ten faults for each combination of ID and severity. If a combination has more than ten
// faults, the tenth fault's message states the number of omitted faults.
func Truncate(faults []Fault) (out []Fault) {
	type kind struct {
		id       string
		severity Severity
	}
	count, last := map[kind]int{}, map[kind]int{}
	for _, f := range faults {
		k := kind{f.ID, f.Severity}
		if count[k]++; count[k] <= maxPerKind {
			last[k] = len(out)
			out = append(out, f)
		}
	}
	for k, n := range count {
		if n > maxPerKind {
			out[last[k]].Message += fmt.Sprintf("; and %d more such faults", n-maxPerKind)
		}
	}
	return out
}

// IDs reports, for every fault ID, whether the Set currently has a fault with this ID that is more severe than a
// notice.
func (s *Set) IDs() map[string]bool {
	out := map[string]bool{}
	for _, id := range IDs() {
		out[id] = false
	}
	for _, f := range s.All() {
		out[f.ID] = out[f.ID] || f.Severity > Notice
	}
	return out
}
