package health

import (
	"fmt"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// sourceFaults returns the sources' faults. A source's fault never changes the host's health, because Edgeway keeps the
// objects that it last read from the source.
func (c *Checker) sourceFaults() (out []fault.Fault) {
	for _, src := range c.sources {
		if f, faulty := SourceFault(src.Name(), src.Status()); faulty {
			out = append(out, f)
		}
	}
	return out
}

// SourceFault returns the fault that a source's status describes. faulty reports whether the status describes a fault.
func SourceFault(name string, st source.Status) (f fault.Fault, faulty bool) {
	if !st.IsFaulty() {
		return f, false
	}
	f = fault.New("source-"+name, fault.Warning, st.Fault.Fix, "Source %s is %s", name, st.State())
	if f.Since = st.LastContact; f.Since.IsZero() {
		f.Message += ", no contact yet"
	} else {
		f.Message += fmt.Sprintf(", last contact %s ago", time.Since(f.Since).Round(time.Second))
	}
	if st.Fault.Message != "" {
		f.Message += ": " + st.Fault.Message
	}
	return f, true
}
