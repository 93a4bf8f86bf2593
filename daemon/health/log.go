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

const (
	// startupTime is the delay between a start or reload and the first read of the faults. This delay gives the sources
	// and the doctor time to find the existing faults.
	startupTime = 10 * time.Second
	// logInterval is the time between two reads of the faults. Run logs a fault only after two consecutive reads have
	// found it. Some faults last only for a moment, for example while the host renews a DHCP lease.
	logInterval = 5 * time.Second
)

// FaultLog logs a line when a fault appears and another line when it disappears. A FaultLog survives a reload, so it
// can log which faults the reload fixed.
type FaultLog struct {
	lines       *journal.Damper
	except      []string
	knownFaults map[string]*known // knownFaults holds the faults of the previous read, by key
}

// NewFaultLog returns a FaultLog without any known faults. The FaultLog ignores the pipeline's faults and all faults
// whose IDs are in except, because other components log them.
func NewFaultLog(lines *journal.Damper, except ...string) *FaultLog {
	return &FaultLog{lines: lines, except: append(except, "first-sync", "backend-sync", "quarantine")}
}

// Run reads the faults repeatedly until ctx is done. Only one goroutine at a time may call Run.
func (l *FaultLog) Run(ctx context.Context, faults func() []fault.Fault) {
	for wait := startupTime; ; wait = logInterval {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			l.look(faults())
		}
	}
}

type known struct {
	fault.Fault
	logged bool
}

func (l *FaultLog) look(faults []fault.Fault) {
	now := map[string]*known{}
	for _, f := range faults {
		if l.hasOwnLines(f.ID) {
			continue
		}
		k := key(f)
		if now[k] != nil {
			continue
		}
		before, lasts := l.knownFaults[k]
		now[k] = &known{f, lasts && (before.logged || !isListing(f))}
		if now[k].logged && (!before.logged || isOfSource(f) && !isListing(f) && f.Fix != before.Fix) {
			l.lines.Log(k, levelOf(f.Severity), messageid.FaultBegan, "fault began",
				"fault", f.ID, "message", f.String(), "fix", f.Fix)
		}
	}
	for k, f := range l.knownFaults {
		if f.logged && now[k] == nil {
			l.lines.Log(k, slog.LevelInfo, messageid.FaultEnded, "fault ended", "fault", f.ID, "message", f.String())
		}
	}
	l.knownFaults = now
}

func (l *FaultLog) hasOwnLines(id string) bool {
	return strings.HasPrefix(id, "follower-") || slices.Contains(l.except, id)
}

func isOfSource(f fault.Fault) bool { return strings.HasPrefix(f.ID, "source-") }

// isListing reports whether the fault only means that a source has not listed all objects yet. After a start, sources
// need time to list their objects. If a source's fault has another cause, the fault includes a fix.
func isListing(f fault.Fault) bool { return isOfSource(f) && f.Fix == "" }

// key returns a key that identifies a fault. The key excludes the message, because numbers in the message may change.
// The key of a Service's fault does not contain the fix, because the fix may name another endpoint later. For a
// source's fault, the key is just the fault's ID, because the cause may change before the source works again. If the
// fix for a source's fault changes, the FaultLog logs another "fault began" line.
func key(f fault.Fault) string {
	switch {
	case f.Scope.ServicePort != "":
		return f.ID + " " + f.Scope.ServicePort
	case isOfSource(f):
		return f.ID
	}
	return fmt.Sprint(f.ID, " ", f.Object, " ", f.Fix)
}

func levelOf(s fault.Severity) slog.Level {
	switch s {
	case fault.OK, fault.Notice:
		return slog.LevelInfo
	case fault.Warning:
		return slog.LevelWarn
	}
	return slog.LevelError
}
