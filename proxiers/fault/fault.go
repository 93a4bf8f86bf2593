// Package fault has the type for everything that is wrong. The part that notices a fault makes it, with its fix. Others
// only show it.
package fault

import (
	"fmt"
	"slices"
	"time"
)

// Severity says what a fault means for the host.
type Severity uint8

// The severities, the mildest first. OK is no fault: edgeway doctor says of each check what it saw.
const (
	OK        Severity = iota
	Notice             // everything works; worth knowing
	Warning            // the host works, with a restriction or from old data
	Problem            // connections of this host or to these Services fail
	Unhealthy          // the kernel does not hold the plan
)

var names = []string{"ok", "notice", "warning", "problem", "unhealthy"}

// String returns the name, in lower case.
func (s Severity) String() string {
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("severity %d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("unknown severity %q", text)
	}
	*s = Severity(i)
	return nil
}

// Fault is one thing that is wrong now.
type Fault struct {
	// ID is stable and in kebab-case: the label of a metric, and a heading in the manual.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Object is what the fault is about, for people: namespace/name, file:line, a device or an address. "" is the host.
	Object string `json:"object,omitempty"`
	// Scope is which connections are concerned, for edgeway explain.
	Scope Scope `json:"-"`
	// Message is one sentence without advice.
	Message string `json:"message,omitempty"`
	// Fix is a command for a shell, or a key of the configuration and its value. It is "" if there is none.
	Fix string `json:"fix,omitempty"`
	// Since is when the fault began, or zero if that is not known.
	Since time.Time `json:"since,omitzero"`
}

// String returns the object and the message.
func (f Fault) String() string {
	if f.Object == "" {
		return f.Message
	}
	return f.Object + ": " + f.Message
}

// New returns a fault of the host, whose message is formatted.
func New(id string, severity Severity, fix, format string, args ...any) Fault {
	return Fault{ID: id, Severity: severity, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// Of returns the fault as one of an object.
func (f Fault) Of(object string) Fault {
	f.Object = object
	return f
}

// For returns the fault with a scope.
func (f Fault) For(s Scope) Fault {
	f.Scope = s
	return f
}

// Worst returns the highest severity, or OK if there are no faults.
func Worst(faults []Fault) Severity {
	worst := OK
	for _, f := range faults {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Sort puts the worst faults first, and keeps the order of equal ones.
func Sort(faults []Fault) {
	slices.SortStableFunc(faults, func(a, b Fault) int { return int(b.Severity) - int(a.Severity) })
}
