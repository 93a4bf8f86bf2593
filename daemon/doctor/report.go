package doctor

import (
	"fmt"
	"io"
	"slices"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
)

// Report is what was found, for people and for programs.
type Report struct {
	// Daemon is the process id of the daemon that was asked; absent: none runs.
	Daemon int `json:"daemon,omitempty"`
	// Severity is that of the worst fault.
	Severity fault.Severity `json:"severity"`
	// Faults has the worst first. What is in order has the severity OK.
	Faults []fault.Fault `json:"faults"`
}

// NewReport sorts the faults, and leaves out the notices that the configuration ignores.
func NewReport(h *Host, found []fault.Fault) Report {
	found = slices.DeleteFunc(found, func(f fault.Fault) bool { return f.Ignored(h.Config.Doctor.Ignore) })
	fault.Sort(found)
	return Report{Daemon: h.PID, Severity: fault.Worst(found), Faults: found}
}

// WriteText prints a table: a line for each fault, and below it its fix.
func (r Report) WriteText(w io.Writer) error {
	count := map[fault.Severity]int{}
	for _, f := range r.Faults {
		count[f.Severity]++
		line := fmt.Sprintf("%-9s %-16s %s\n", f.Severity, f.ID, text.CleanLine(f.String()))
		if f.Fix != "" {
			line += fmt.Sprintf("%-26s fix: %s\n", "", text.CleanLine(f.Fix))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s, %s, %s, %d ok\n", text.Count(count[fault.Problem]+count[fault.Unhealthy], "problem"),
		text.Count(count[fault.Warning], "warning"), text.Count(count[fault.Notice], "notice"), count[fault.OK])
	return err
}
