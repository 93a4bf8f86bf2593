package daemon

import (
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
	return slices.DeleteFunc(i.faults(), func(f fault.Fault) bool { return f.ID == proxiers.FastPathFault })
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
