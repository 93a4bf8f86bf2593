package health

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/journal"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

// logEvery is the time between two polls of the faults. A fault is logged when a second poll finds it too, because some
// faults last only a moment, for example while a DHCP lease is renewed.
const logEvery = 10 * time.Second

// Log logs a line when a fault begins and another line when the fault ends, until ctx is done. It leaves out the faults
// of the pipeline, the followers and the sources, and the faults with the given IDs, because other parts of the daemon
// log them.
func (c *Checker) Log(ctx context.Context, lines *journal.Damper, except ...string) {
	l := faultLog{lines: lines, except: append(except, "first-sync", "backend-sync", "quarantine")}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(logEvery):
			l.look(c.Faults())
		}
	}
}

type faultLog struct {
	lines  *journal.Damper
	except []string
	known  map[string]*known // the faults of the last poll, by key
}

type known struct {
	fault.Fault
	logged bool
}

// look compares the current faults with the faults of the last poll, and logs the differences.
func (l *faultLog) look(faults []fault.Fault) {
	now := map[string]*known{}
	for _, f := range faults {
		k := key(f)
		if now[k] != nil || l.hasOwnLines(f.ID) {
			continue
		}
		before, lasts := l.known[k]
		now[k] = &known{f, lasts}
		if lasts && !before.logged {
			l.lines.Log(k, levelOf(f.Severity), messageid.FaultBegan, "fault began",
				"fault", f.ID, "seen", f.String(), "fix", f.Fix)
		}
	}
	for k, f := range l.known {
		if f.logged && now[k] == nil {
			l.lines.Log(k, slog.LevelInfo, messageid.FaultEnded, "fault ended", "fault", f.ID, "seen", f.String())
		}
	}
	l.known = now
}

func (l *faultLog) hasOwnLines(id string) bool {
	return strings.HasPrefix(id, "source-") || strings.HasPrefix(id, "follower-") || slices.Contains(l.except, id)
}

// key identifies a fault. The key leaves out the message, because figures in the message change.
func key(f fault.Fault) string { return fmt.Sprint(f.ID, " ", f.Object, " ", f.Fix) }

func levelOf(s fault.Severity) slog.Level {
	switch s {
	case fault.OK, fault.Notice:
		return slog.LevelInfo
	case fault.Warning:
		return slog.LevelWarn
	}
	return slog.LevelError
}
