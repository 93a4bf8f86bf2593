package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/journal"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

// serviceLog logs each Service that is added or removed, loses its last ready endpoint, or gets one. It remembers the
// Services without an endpoint, so that the cost of computing their faults depends on the number of these Services and
// not on the size of the plan. Its methods may be called from any goroutine.
type serviceLog struct {
	logger *slog.Logger
	lines  *journal.Damper

	mu sync.Mutex
	// idle holds the Services that have a port without an endpoint, each with the time since when. The time is zero for
	// a Service that had no endpoint at the start.
	idle   map[tracker.Name]time.Time
	snap   *tracker.Snapshot // of the last sync
	plan   *plan.Plan
	faults []fault.Fault // of snap and plan, unless stale
	stale  bool
	// began is the time of the first sync, and starting reports whether the sources are still listing their objects.
	began    time.Time
	starting bool
}

// startTime bounds the time after the first sync in which newly listed objects belong to the initial state and are not
// logged as changes.
const startTime = time.Minute

func newServiceLog(logger *slog.Logger, lines *journal.Damper) *serviceLog {
	return &serviceLog{logger: logger, lines: lines, idle: map[tracker.Name]time.Time{}}
}

// synced logs what a sync of the backend changed.
func (l *serviceLog) synced(snap *tracker.Snapshot, p *plan.Plan, s pipeline.Synced) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = l.stale || !s.Unchanged || l.plan == nil
	l.snap, l.plan = snap, p
	first := s.Change.Prev == nil
	if first {
		l.began, l.starting = time.Now(), true
	}
	if l.starting && time.Since(l.began) < startTime {
		l.start(p)
		if l.starting = !snap.Complete; first || snap.Complete {
			l.summarize(s.Duration)
		}
		return
	}
	for _, name := range changedServices(s.Change) {
		l.note(name, s.Change.Prev.Of(name.Namespace, name.Name), p.Of(name.Namespace, name.Name))
	}
}

// start makes a plan the initial state: it records the Services without an endpoint and logs nothing.
func (l *serviceLog) start(p *plan.Plan) {
	clear(l.idle)
	for _, sp := range plan.WithoutEndpoint(p.Services) {
		l.idle[serviceOf(sp)] = time.Time{}
	}
}

func (l *serviceLog) summarize(took time.Duration) {
	n := pipeline.Count(l.plan)
	l.logger.Info("Services are served", "services", n.Services, "endpoints", n.Endpoints,
		"without_endpoint", n.WithoutEndpoint, "complete", l.snap.Complete, "duration", took)
}

func serviceOf(sp *plan.ServicePort) tracker.Name {
	return tracker.Name{Namespace: sp.Name.Namespace, Name: sp.Name.Name}
}

// changedServices returns the names of the Services in a change, each once.
func changedServices(c proxiers.Change) (names []tracker.Name) {
	for _, sp := range slices.Concat(c.Changed, c.Removed) {
		names = append(names, serviceOf(sp))
	}
	slices.SortFunc(names, tracker.Name.Compare)
	return slices.Compact(names)
}

// note logs how a Service has changed.
func (l *serviceLog) note(name tracker.Name, before, after []*plan.ServicePort) {
	idleBefore, idle := len(plan.WithoutEndpoint(before)), len(plan.WithoutEndpoint(after))
	switch {
	case idle == 0:
		delete(l.idle, name)
	case idleBefore == 0:
		l.idle[name] = time.Now()
	}
	service := name.Namespace + "/" + name.Name
	log := func(id, message string) {
		l.lines.Log(service, slog.LevelInfo, id, message, "service", service, "ports_without_endpoint", idle)
	}
	switch {
	case len(before) == 0:
		log(messageid.ServiceAdded, "Service added")
	case len(after) == 0:
		log(messageid.ServiceRemoved, "Service removed")
	case idle > idleBefore:
		log(messageid.EndpointsGone, "Service lost its last ready endpoint")
	case idle < idleBefore:
		log(messageid.EndpointsBack, "Service has a ready endpoint")
	}
}

// unserved returns a Notice for each port without an endpoint, the latest first.
func (l *serviceLog) unserved() []fault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stale {
		return l.faults
	}
	l.faults, l.stale = nil, false
	for _, name := range slices.SortedFunc(maps.Keys(l.idle), tracker.Name.Compare) {
		svc := l.snap.Find(name)
		if svc == nil { // the Service was deleted, but the kernel still has it
			continue
		}
		for _, f := range planner.Unserved(svc, l.plan) {
			f.Since = l.idle[name]
			l.faults = append(l.faults, f)
		}
	}
	slices.SortStableFunc(l.faults, func(a, b fault.Fault) int { return b.Since.Compare(a.Since) })
	return l.faults
}

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
