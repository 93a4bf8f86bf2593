package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"edgeway/proxiers/plan"
)

type report struct {
	mu          sync.Mutex
	connections int
	differences int
	matrix      map[string]map[string]int // connections by dimension and value of the matrix
	deviated    map[string]int            // connections by deviation
	// eligibleCount is the number of connections that could take the shortcut, and shortcutCount is the number that
	// did.
	eligibleCount, shortcutCount int
}

func newReport() *report {
	return &report{matrix: map[string]map[string]int{}, deviated: map[string]int{}}
}

func (r *report) count(row row, d plan.Decision, n int) {
	frontend := "none"
	if d.Frontend != nil {
		frontend = d.Frontend.Kind.String()
	}
	verdict := d.Verdict.String()
	if d.Verdict == plan.Forward {
		verdict += " " + d.Pool.String()
		if d.SNAT {
			verdict += " masqueraded"
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connections += n
	origin := d.Origin.String()
	if row.unbound {
		origin += " unbound"
	}
	for dimension, value := range map[string]string{
		"origin": origin, "frontend": frontend, "protocol": row.protocol.String(),
		"family": plan.FamilyOf(row.to.Addr()).String(), "verdict": verdict,
	} {
		if r.matrix[dimension] == nil {
			r.matrix[dimension] = map[string]int{}
		}
		r.matrix[dimension][value] += n
	}
}

func (r *report) countTaken(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shortcutCount += n
}

func (r *report) countEligible(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eligibleCount += n
}

func (r *report) countDifferences(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.differences += n
}

func (r *report) countDeviation(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deviated[name]++
}

// summary returns a summary of the suite's run, with a line for each dimension of the matrix.
func (r *report) summary(backend string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "conformance: %s: %s connections compared, %s differences\n", backend, thousands(r.connections),
		thousands(r.differences))
	for _, dimension := range []string{"origin", "frontend", "protocol", "family", "verdict"} {
		fmt.Fprintf(&b, "  %-9s", dimension)
		for _, value := range slices.Sorted(maps.Keys(r.matrix[dimension])) {
			fmt.Fprintf(&b, "  %s %s", value, thousands(r.matrix[dimension][value]))
		}
		b.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(r.deviated)) {
		fmt.Fprintf(&b, "  declared deviation %q occurred in %s connections\n", name, thousands(r.deviated[name]))
	}
	if r.eligibleCount > 0 {
		fmt.Fprintf(&b, "  shortcut   used by %s of %s eligible connections\n",
			thousands(r.shortcutCount), thousands(r.eligibleCount))
	}
	return b.String()
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
