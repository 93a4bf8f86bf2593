package daemon

import (
	"fmt"

	"edgeway/daemon/health"
	"edgeway/proxiers/contain"
)

// panicConditions names the parts that panicked within the last ten minutes. They run again: the host still serves what
// the kernel holds.
func panicConditions(faults []contain.Fault) (out []health.Condition) {
	for _, f := range faults {
		out = append(out, health.Condition{
			Name: "panic", Level: health.Warning, Since: f.Last,
			Message: fmt.Sprintf("A fault of Edgeway stopped its part %q %d times within ten minutes, and the part runs again: %s. "+
				"The log has the stack", f.Part, f.Times, f.Err),
		})
	}
	return out
}
