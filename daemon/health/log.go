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

// logEvery is the time between two looks at the faults. A fault that two looks find has begun: some last for a moment,
// for example while a DHCP lease is renewed.
const logEvery = 10 * time.Second

// FaultLog writes a line when a fault begins and one when it ends. It outlives a reload, which ends many faults.
type FaultLog struct {
	lines  *journal.Damper
	except []string
	known  map[string]*known // by key, of the last look
}

// NewFaultLog returns a FaultLog that knows no fault. It leaves out the faults of the pipeline and the sources, and
// those with the given IDs, because the parts that make them have lines of their own.
func NewFaultLog(lines *journal.Damper, except ...string) *FaultLog {
	return &FaultLog{lines: lines, except: append(except, "first-sync", "backend-sync", "quarantine")}
}

// Run looks at the faults until ctx ends. It must not run twice at the same time.
func (l *FaultLog) Run(ctx context.Context, faults func() []fault.Fault) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(logEvery):
			l.look(faults())
		}
	}
}

type known struct {
	fault.Fault
	logged bool
}

// look compares the faults of now with those of the last look.
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
		before, lasts := l.known[k]
		now[k] = &known{f, lasts}
		if lasts && !before.logged {
			l.lines.Log(k, levelOf(f.Severity), messageid.FaultBegan, "fault began",
				"fault", f.ID, "message", f.String(), "fix", f.Fix)
		}
	}
	for k, f := range l.known {
		if f.logged && now[k] == nil {
			l.lines.Log(k, slog.LevelInfo, messageid.FaultEnded, "fault ended", "fault", f.ID, "message", f.String())
		}
	}
	l.known = now
}

func (l *FaultLog) hasOwnLines(id string) bool {
	return strings.HasPrefix(id, "source-") || strings.HasPrefix(id, "follower-") || slices.Contains(l.except, id)
}

// key identifies a fault. The message may have other figures each time, and the fix of a Service that is dead another
// endpoint.
func key(f fault.Fault) string {
	if f.Scope.ServicePort != "" {
		return f.ID + " " + f.Scope.ServicePort
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
