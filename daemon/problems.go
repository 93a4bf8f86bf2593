package daemon

import (
	"log/slog"
	"slices"

	"edgeway/daemon/source"
)

// maxProblemLines bounds what one plan may add to the log; status and metrics have all problems.
const maxProblemLines = 50

// problemLog writes each problem with an object once, when it appears.
type problemLog struct {
	logger *slog.Logger
	last   [2][]source.Problem // what the previous call was given
	seen   map[source.Problem]struct{}
}

// note gets all problems after each plan: those that the sources found, and those that the
// planner found. The sources and the planner pass the same list if it did not change; it is then
// skipped.
func (l *problemLog) note(objects, planned []source.Problem) {
	if sameList(l.last[0], objects) && sameList(l.last[1], planned) {
		return
	}
	l.last = [2][]source.Problem{objects, planned}
	before := l.seen
	l.seen = make(map[source.Problem]struct{}, len(objects)+len(planned))
	lines := 0
	for _, p := range slices.Concat(objects, planned) {
		l.seen[p] = struct{}{}
		if _, known := before[p]; known {
			continue
		}
		if lines++; lines <= maxProblemLines {
			l.logger.Warn("object has a problem, the affected part is ignored", "object", p.Object.String(), "field", p.Field, "fault", p.Message)
		}
	}
	if lines > maxProblemLines {
		l.logger.Warn("more objects have problems, see edgeway status", "more", lines-maxProblemLines)
	}
}

func sameList(a, b []source.Problem) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
