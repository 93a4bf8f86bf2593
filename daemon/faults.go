package daemon

import (
	"fmt"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/fault"
)

// faults returns the faults of the stages and of the daemon's own servers.
func (i *instance) faults() (out []fault.Fault) {
	for _, s := range i.stages {
		if r, ok := s.Applier.(proxiers.Reporter); ok {
			out = append(out, r.Faults()...)
		}
	}
	return append(out, i.servers.faults()...)
}

// shownFaults returns the faults for health, except for the fast path's, which fastPath reports.
func (i *instance) shownFaults() []fault.Fault {
	return slices.DeleteFunc(bounded(i.faults()), func(f fault.Fault) bool { return f.ID == proxiers.FastPathFault })
}

// maxPorts bounds the ports of Services that are named; the notListening of edgeway status --json has all.
const maxPorts = 10

// bounded leaves out ports of Services beyond maxPorts, and says so.
func bounded(faults []fault.Fault) (out []fault.Fault) {
	named, last, more := 0, 0, 0
	for _, f := range faults {
		if f.ID == proxiers.PortFault && f.Severity == fault.Problem {
			if named == maxPorts {
				more++
				continue
			}
			named, last = named+1, len(out)
		}
		out = append(out, f)
	}
	if more > 0 {
		out[last].Message += fmt.Sprintf("; and neither are %d more", more)
	}
	return out
}

// notListening returns the messages of all ports that are not served.
func notListening(faults []fault.Fault) []string {
	out := []string{}
	for _, f := range faults {
		if f.ID == proxiers.PortFault {
			out = append(out, f.Message)
		}
	}
	return out
}
