// Package finding is what a look at the host found: what edgeway doctor prints, and what the daemon shows as a
// condition.
package finding

import "fmt"

// Level says how bad a finding is.
type Level string

// The levels, the best first.
const (
	OK      Level = "ok"
	Warning Level = "warning" // works, or nothing needs it now
	Problem Level = "problem" // connections fail
)

// Finding is one check's result. A check may have several, one for each thing that it looked at.
type Finding struct {
	Check string `json:"check"` // kebab-case, and the condition's name: "ip-forward"
	Level Level  `json:"level"`
	// Seen is what was seen, in a sentence that stands for itself.
	Seen string `json:"seen"`
	// Mend is the command, or the configuration key and its value, that mends it; empty for OK.
	Mend string `json:"mend,omitempty"`
	// Unknown reports that the check could not look, so that an earlier finding may still hold.
	Unknown bool `json:"unknown,omitempty"`
}

// New puts what was seen into words.
func New(check string, level Level, mend, format string, args ...any) Finding {
	return Finding{Check: check, Level: level, Seen: fmt.Sprintf(format, args...), Mend: mend}
}

// Worst gives the level of the worst finding; of none, OK.
func Worst(all []Finding) Level {
	worst := OK
	for _, f := range all {
		if f.Level == Problem || worst == OK {
			worst = f.Level
		}
	}
	return worst
}
