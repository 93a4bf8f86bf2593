package daemon

import (
	"fmt"
	"log/slog"
	"slices"

	"edgeway/daemon/config"
	"edgeway/daemon/health"
	"edgeway/daemon/journal"
	"edgeway/daemon/planner"
	"edgeway/daemon/source/kube"
	"edgeway/daemon/source/lastknown"
	"edgeway/proxiers"
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

// newFaultLog returns a FaultLog with a Damper of its own: a change of many Services must not leave out its lines.
func newFaultLog(logger *slog.Logger) *health.FaultLog {
	return health.NewFaultLog(journal.NewDamper(logger), haveOwnLines()...)
}

// haveOwnLines returns the IDs of the faults that other parts log: each object, endpoint or port has its line.
func haveOwnLines() []string {
	return append(kube.FaultIDs(), planner.NoEndpointID, proxiers.PortFault, proxiers.FastPathFault, "shortcut",
		"endpoint-checks", "panic", lastknown.FaultID, "removed-key", "fallback", "leftovers")
}

// removedKeys returns a warning for each file that sets removed keys. The check of the configuration says what replaced
// them.
func (c *Core) removedKeys() (out []fault.Fault) {
	for _, r := range c.cfg.Removed {
		key := fmt.Sprintf("%s (line %d)", r.Key, r.Line)
		if last := len(out) - 1; last >= 0 && out[last].Object.Name == r.File {
			out[last].Message += ", " + key
			continue
		}
		out = append(out, fault.New("removed-key", fault.Warning, "edgeway config check",
			"removed keys are ignored: %s", key).Of(r.File))
	}
	return out
}

func logRemovedKeys(logger *slog.Logger, keys []config.Removed) {
	for _, r := range keys {
		logger.Warn("configuration key was removed, ignoring it", "file", r.File, "line", r.Line, "key", r.Key,
			"replacement", r.Replacement)
	}
}
