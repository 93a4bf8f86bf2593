package daemon

import (
	"fmt"
	"log/slog"
	"slices"

	"edgeway/daemon/config"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
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
			out = append(out, f.String())
		}
	}
	return out
}

// panicFaults names the parts that panicked within the last ten minutes. They run again, and the kernel still
// forwards.
func panicFaults(faults []contain.Fault) (out []fault.Fault) {
	for _, f := range faults {
		out = append(out, fault.Fault{
			ID: "panic", Severity: fault.Warning, Since: f.Last,
			Message: fmt.Sprintf("A fault of Edgeway stopped its part %q %d times within ten minutes, and the part runs again: %s. "+
				"The log has the stack", f.Part, f.Times, f.Err),
		})
	}
	return out
}

// removedKeyFix is what to do about a removed key, whatever replaced it.
const removedKeyFix = "remove this line from the file"

// removedKeys returns a warning for each removed key that the configuration sets.
func (c *Core) removedKeys() (out []fault.Fault) {
	for _, r := range c.cfg.Removed {
		out = append(out, fault.Fault{
			ID: "removed-key", Severity: fault.Warning, Message: r.String(),
			Fix: removedKeyFix,
		})
	}
	return out
}

func logRemovedKeys(logger *slog.Logger, keys []config.Removed) {
	for _, r := range keys {
		logger.Warn("configuration key was removed, ignoring it", "file", r.File, "line", r.Line, "key", r.Key,
			"replacement", r.Replacement)
	}
}
