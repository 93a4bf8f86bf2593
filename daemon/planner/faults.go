package planner

import (
	"fmt"
	"strconv"

	"edgeway/daemon/source"
)

// maxFaults bounds how many faults of one Service are kept; the last one then says how many more there are.
const maxFaults = 20

// faults collects the problems of one Service; nil: they are not wanted.
type faults struct {
	object source.Key
	list   []source.Problem
	more   int
}

// full reports whether further faults are only counted.
func (f *faults) full() bool { return len(f.list) >= maxFaults }

func (f *faults) addf(field, format string, args ...any) {
	switch {
	case f == nil:
	case f.full():
		f.more++
	default:
		f.list = append(f.list, source.Problem{Object: f.object, Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

func (f *faults) done() []source.Problem {
	if f.more > 0 {
		f.list = append(f.list, source.Problem{Object: f.object, Message: strconv.Itoa(f.more) + " more faults"})
	}
	return f.list
}
