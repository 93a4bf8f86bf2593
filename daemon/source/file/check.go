package file

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// CheckResult contains the objects and the problems that Check found.
type CheckResult struct {
	Objects []source.Object // the objects that Run would serve
	// Problems lists the faults in the files and in their objects.
	Problems     []fault.Fault
	EmptyDirs    []fault.Fault // a Notice for each directory without manifests
	IgnoredKinds []string      // kinds that Edgeway does not use, such as "networking.k8s.io/v1 Ingress"

	positions map[source.Key]position
}

// Check reads all files once and returns their objects and problems.
func Check(o Options) *CheckResult {
	s, r := New(o), &readResult{}
	s.scan(r)
	s.merge(r)
	c := &CheckResult{
		Problems: r.paths, EmptyDirs: emptyFaults(r.emptyPaths), IgnoredKinds: slices.Sorted(maps.Keys(s.ignored)),
		positions: r.positions,
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.objects), source.Key.Compare) {
		c.Objects = append(c.Objects, r.objects[key])
		c.Problems = append(c.Problems, r.objects[key].Problems()...)
	}
	slices.SortStableFunc(c.Problems, comparePositions)
	return c
}

// Locate returns copies of the problems, sorted by position. Each copy has the position of the document that contains
// the problem's object.
func (c *CheckResult) Locate(problems []fault.Fault) []fault.Fault {
	out := slices.Clone(problems)
	for i := range out {
		if at, ok := c.positions[out[i].Object]; ok {
			out[i].Position = at.String()
		}
	}
	slices.SortStableFunc(out, comparePositions)
	return out
}

func comparePositions(a, b fault.Fault) int {
	fileA, lineA := splitPosition(a.Position)
	fileB, lineB := splitPosition(b.Position)
	return cmp.Or(strings.Compare(fileA, fileB), cmp.Compare(lineA, lineB))
}

// splitPosition splits "file:line". line is 0 if the position contains no line number.
func splitPosition(at string) (file string, line int) {
	i := strings.LastIndexByte(at, ':')
	line, err := strconv.Atoi(at[i+1:])
	if i < 0 || err != nil {
		return at, 0
	}
	return at[:i], line
}
