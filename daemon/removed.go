package daemon

import (
	"log/slog"

	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
)

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
