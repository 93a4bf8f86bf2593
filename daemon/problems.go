package daemon

import (
	"context"
	"log/slog"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

// maxProblemLines bounds the lines that one plan adds to the log; status and metrics have all problems.
const maxProblemLines = 50

// problemLog writes each problem with an object once, when it appears.
type problemLog struct {
	logger  *slog.Logger
	ignored []string         // IDs whose notices are left out
	last    [2][]fault.Fault // the lists of the previous call
}

// note takes all problems after each plan: those that the sources found, and those that the planner found. Both lists
// are sorted, and most plans change few problems, so it compares what differs from the previous lists. The caller must
// not change the lists.
func (l *problemLog) note(objects, planned []fault.Fault) {
	lines := 0
	for i, list := range [2][]fault.Fault{objects, planned} {
		before, after := difference(l.last[i], list)
		l.last[i] = list
		known := make(map[fault.Fault]struct{}, len(before))
		for _, p := range before {
			known[p] = struct{}{}
		}
		for _, p := range after {
			if _, is := known[p]; is || p.Ignored(l.ignored) || isOfHost(p) {
				continue
			}
			known[p] = struct{}{}
			if lines++; lines <= maxProblemLines {
				level := slog.LevelWarn
				if p.Severity == fault.Notice {
					level = slog.LevelInfo
				}
				l.logger.Log(context.Background(), level, "object has a problem, the affected part is ignored",
					"message_id", messageid.ObjectProblem, "object", p.Object.String(), "at", p.At, "field", p.Field,
					"fault", p.Message, "fix", p.Fix)
			}
		}
	}
	if lines > maxProblemLines {
		l.logger.Warn("more objects have problems, see edgeway status", "more", lines-maxProblemLines)
	}
}

// difference cuts off what two lists begin and end with in common.
func difference(a, b []fault.Fault) (restA, restB []fault.Fault) {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return nil, nil
	}
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}
