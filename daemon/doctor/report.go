package doctor

import (
	"fmt"
	"io"
	"strings"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/text"
)

// Report is what was found, for people and for programs.
type Report struct {
	// Daemon is the process id of the daemon that was asked; absent: none runs.
	Daemon int `json:"daemon,omitempty"`
	// Level is the worst of the findings.
	Level    finding.Level     `json:"level"`
	Findings []finding.Finding `json:"findings"` // the worst first
}

// NewReport sorts the findings.
func NewReport(h *Host, found []finding.Finding) Report {
	return Report{Daemon: h.PID, Level: finding.Worst(found), Findings: sorted(found)}
}

// WriteText prints a table: a line for each finding, and below it what mends it.
func (r Report) WriteText(w io.Writer) error {
	count := map[finding.Level]int{}
	for _, f := range r.Findings {
		count[f.Level]++
		line := fmt.Sprintf("%-8s %-16s %s\n", f.Level, f.Check, text.CleanLine(f.Seen))
		if f.Mend != "" {
			line += fmt.Sprintf("%-25s mend: %s\n", "", text.CleanLine(f.Mend))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	var sum []string
	for _, l := range []struct {
		level      finding.Level
		one, other string
	}{{finding.Problem, "problem", "problems"}, {finding.Warning, "warning", "warnings"}} {
		switch n := count[l.level]; n {
		case 0:
			sum = append(sum, "no "+l.one)
		case 1:
			sum = append(sum, "1 "+l.one)
		default:
			sum = append(sum, fmt.Sprintf("%d %s", n, l.other))
		}
	}
	_, err := fmt.Fprintf(w, "\n%s, %d ok\n", strings.Join(sum, ", "), count[finding.OK])
	return err
}
