package fault

import (
	"fmt"
	"slices"
)

// Set asks the parts of the daemon for their faults.
type Set struct {
	parts []func() []Fault
	ids   []string
	// ignored has the IDs whose notices All leaves out.
	ignored []string
}

// Include adds a part, whose faults have these IDs. It must not be called after the first call of All or IDs.
func (s *Set) Include(faults func() []Fault, ids ...string) {
	s.parts = append(s.parts, faults)
	s.ids = append(s.ids, ids...)
}

// Ignore has All leave out the notices with these IDs. It must not be called after the first call of All or IDs.
func (s *Set) Ignore(ids ...string) { s.ignored = ids }

// All returns the faults of all parts, the worst first, without those that are ignored.
func (s *Set) All() (out []Fault) {
	for _, faults := range s.parts {
		out = append(out, faults()...)
	}
	out = slices.DeleteFunc(out, func(f Fault) bool { return f.Ignored(s.ignored) })
	Sort(out)
	return out
}

// maxAlike bounds the faults of one ID and severity that are shown.
const maxAlike = 10

// Bounded leaves out faults of an ID beyond the first ten of each severity, and the tenth says so.
func Bounded(faults []Fault) (out []Fault) {
	type kind struct {
		id       string
		severity Severity
	}
	count, last := map[kind]int{}, map[kind]int{}
	for _, f := range faults {
		k := kind{f.ID, f.Severity}
		if count[k]++; count[k] <= maxAlike {
			last[k] = len(out)
			out = append(out, f)
		}
	}
	for k, n := range count {
		if n > maxAlike {
			out[last[k]].Message += fmt.Sprintf("; and %d more like it", n-maxAlike)
		}
	}
	return out
}

// IDs returns whether there is a fault with each of the IDs.
func (s *Set) IDs() map[string]bool {
	out := map[string]bool{}
	for _, id := range s.ids {
		out[id] = false
	}
	for _, f := range s.All() {
		out[f.ID] = true
	}
	return out
}
