package doctor

import (
	"fmt"
	"slices"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
)

// Report lists the doctor's findings for operators and programs.
type Report struct {
	// DaemonPID is the process ID of the daemon, or 0 if no daemon responded.
	DaemonPID int            `json:"daemon,omitempty"`
	Severity  fault.Severity `json:"severity"`
	// Faults lists the worst fault first. A check without a finding adds a fault with severity OK.
	Faults []fault.Fault `json:"faults"`
}

// NewReport returns a Report of the sorted faults, without the notices that the configuration ignores.
func NewReport(h *Host, found []fault.Fault) Report {
	found = slices.DeleteFunc(found, func(f fault.Fault) bool { return f.Ignored(h.Config.Doctor.Ignore) })
	fault.Sort(found)
	return Report{DaemonPID: h.PID, Severity: fault.WorstSeverity(found), Faults: found}
}

// Print prints the number of faults, and then each fault with its fix.
func (r Report) Print(s *text.Screen) {
	count := map[fault.Severity]int{}
	for _, f := range r.Faults {
		count[f.Severity]++
	}
	s.PrintVerdict(r.Severity, fmt.Sprintf("%s, %s, %s, %d ok",
		text.Count(count[fault.Problem]+count[fault.Unhealthy], "problem"), text.Count(count[fault.Warning], "warning"),
		text.Count(count[fault.Notice], "notice"), count[fault.OK]), "")
	for _, f := range r.Faults {
		s.PrintFault(f, f.String())
	}
}
