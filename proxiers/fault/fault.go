// Package fault has the type for everything that is wrong. The part that notices a fault makes it, with its fix. Others
// only show it.
package fault

import "time"

// Severity says what a fault means for the host.
type Severity uint8

// The severities, the mildest first.
const (
	Notice    Severity = iota + 1 // everything works, but somebody may want to know
	Warning                       // the host works, with a restriction or from old data
	Problem                       // connections of this host or to these Services fail
	Unhealthy                     // the kernel does not hold the plan
)

// Fault is one thing that is wrong now.
type Fault struct {
	// ID is stable and in kebab-case: the name of a condition, the label of a metric.
	ID       string
	Severity Severity
	// Object is what the fault is about, for people: namespace/name, file:line, a device or an address. "" is the host.
	Object string
	// Message is one sentence without advice.
	Message string
	// Fix is a command for a shell, or a key of the configuration and its value. It is "" if there is none.
	Fix string
	// Since is when the fault began, or zero if that is not known.
	Since time.Time
}
