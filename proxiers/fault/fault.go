// Package fault defines the type for all problems that Edgeway reports. The component that detects a fault creates the
// Fault, including its fix. Other components only display the fault.
package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity describes a fault's effect on the host.
type Severity uint8

// The severities are in order from mildest to worst. No fault has the severity OK: edgeway doctor uses OK for a check
// that found no fault.
const (
	OK        Severity = iota
	Notice             // everything works, but the administrator should know
	Warning            // the host works, with restrictions or with outdated data
	Problem            // connections from this host or to some Services fail
	Unhealthy          // the kernel does not implement the plan
)

var names = []string{"ok", "notice", "warning", "problem", "unhealthy"}

// String returns the severity's name in lower case.
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

// Fault is a problem that Edgeway currently detects.
type Fault struct {
	// ID is a stable name in kebab-case. Edgeway uses ID as a metric label, and packaging/doc/troubleshooting.md has a
	// section for each ID.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Object is the subject of the fault. The zero Object means the host.
	Object Object `json:"object,omitzero"`
	// Field is the path of the affected field in the object, such as "spec.ports[0].port", or "" if the fault concerns
	// the whole object.
	Field string `json:"field,omitempty"`
	// Position is the object's position in a manifest, in the form "file:line", or "" if the object is not from a
	// manifest.
	Position string `json:"at,omitempty"`
	// Scope selects the connections that the fault concerns, for edgeway explain.
	Scope Scope `json:"-"`
	// Message describes the fault in one sentence, without advice.
	Message string `json:"message,omitempty"`
	// Fix is a shell command, or a configuration key with its value, or "" if no fix is known.
	Fix string `json:"fix,omitempty"`
	// Since is the time when the fault began, or the zero time if the time is unknown.
	Since time.Time `json:"since,omitzero"`
}

// String joins Position, Object, Field and Message into one line.
func (f Fault) String() string {
	parts := []string{f.Position, f.Object.String(), f.Field, f.Message}
	if f.Object.Name == f.Position {
		parts[1] = ""
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

// Error returns the message. A function can return a *Fault as its error, and the caller can find the fix with
// errors.As.
func (f *Fault) Error() string { return f.Message }

// New returns a fault that concerns the host, with a formatted message.
func New(id string, severity Severity, fix, format string, args ...any) Fault {
	return Fault{ID: id, Severity: severity, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// WithName returns a copy of the fault in which Object has only the given name.
func (f Fault) WithName(name string) Fault {
	f.Object = Object{Name: name}
	return f
}

// WithScope returns a copy of the fault with the scope s.
func (f Fault) WithScope(s Scope) Fault {
	f.Scope = s
	return f
}

// Ignored reports whether the fault is a notice and ids contains its ID. Ignored returns false for every fault that is
// more severe than a notice.
func (f Fault) Ignored(ids []string) bool { return f.Severity == Notice && slices.Contains(ids, f.ID) }

// WorstSeverity returns the highest severity among the faults, or OK if there are none.
func WorstSeverity(faults []Fault) Severity {
	worst := OK
	for _, f := range faults {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Sort sorts the faults by severity, worst first. Faults with the same severity keep their order.
func Sort(faults []Fault) {
	slices.SortStableFunc(faults, func(a, b Fault) int { return int(b.Severity) - int(a.Severity) })
}

// Object is the subject of a fault: an API object, a file, a configuration key, a device or an address.
type Object struct {
	// Kind is the Kubernetes kind, such as "Service", or another word if the object is not an API object. Kind is ""
	// for the host and for an object that has only a name.
	Kind, Namespace, Name string
}

// String returns the object in the form "Kind namespace/name", or only the name if there is no kind and no namespace.
func (o Object) String() string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return strings.TrimPrefix(o.Kind+" "+name, " ")
}

// Compare orders objects by kind, namespace and name.
func (o Object) Compare(p Object) int {
	return cmp.Or(strings.Compare(o.Kind, p.Kind), strings.Compare(o.Namespace, p.Namespace),
		strings.Compare(o.Name, p.Name))
}

// MarshalText implements encoding.TextMarshaler.
func (o Object) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText sets the object's name to the whole text.
func (o *Object) UnmarshalText(text []byte) error {
	*o = Object{Name: string(text)}
	return nil
}
