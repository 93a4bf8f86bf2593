package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
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

// serviceLog logs each Service that appears or disappears, loses its last ready endpoint, or has a ready endpoint
// again. serviceLog records the Services without endpoints, so it can compute faults without reading the whole plan.
// Any goroutine may call the methods of serviceLog.
type serviceLog struct {
	logger *slog.Logger
	lines  *journal.Damper

	mu sync.Mutex
	// idleServices holds the Services that have a port without endpoints.
	idleServices map[tracker.Name]*idleService
	snap         *tracker.Snapshot // snap is the snapshot of the last sync
	plan         *plan.Plan
	faults       []fault.Fault // faults holds the faults of snap and plan, unless stale is true
	stale        bool
	// previousPlan is the plan that the previous instance left in the kernel. serviceLog sets previousPlan to nil after
	// recording the complete initial state.
	previousPlan  *plan.Plan
	firstSyncTime time.Time
	// starting reports whether the sources are still listing their objects.
	starting bool
}

type idleService struct {
	since   time.Time        // since is zero if the port had no endpoint at the start
	service *tracker.Service // service is the Service that faults describes, or nil if faults is outdated
	faults  []fault.Fault
}

// startPeriod is the time after the first sync during which Edgeway counts newly listed objects as initial state and
// does not log them as changes.
const startPeriod = time.Minute

func newServiceLog(logger *slog.Logger, lines *journal.Damper, before *plan.Plan) *serviceLog {
	return &serviceLog{
		logger: logger, lines: lines, previousPlan: before, idleServices: map[tracker.Name]*idleService{},
	}
}

// logSync logs the Services that changed in a backend sync.
func (l *serviceLog) logSync(snap *tracker.Snapshot, p *plan.Plan, s pipeline.SyncResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = l.stale || !s.Unchanged || l.plan == nil
	l.snap, l.plan = snap, p
	first := s.Change.Prev == nil
	if first {
		l.firstSyncTime, l.starting = time.Now(), true
	}
	if l.starting && time.Since(l.firstSyncTime) < startPeriod {
		l.recordInitial(p)
		if l.starting = !snap.Complete; first || snap.Complete {
			l.summarize(s.Duration)
		}
		if snap.Complete && l.previousPlan != nil {
			l.logChange(proxiers.NewChange(l.previousPlan, p))
			l.previousPlan = nil
		}
		return
	}
	l.logChange(s.Change)
}

func (l *serviceLog) logChange(c proxiers.Change) {
	for _, name := range changedServices(c) {
		l.note(name, c.Prev.FindService(name.Namespace, name.Name), c.Next.FindService(name.Namespace, name.Name))
	}
}

// recordInitial records the Services without endpoints as the initial state, and logs nothing.
func (l *serviceLog) recordInitial(p *plan.Plan) {
	clear(l.idleServices)
	for _, sp := range plan.ServicePortsWithoutEndpoint(p.Services) {
		l.idleServices[serviceOf(sp)] = &idleService{}
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

func changedServices(c proxiers.Change) (names []tracker.Name) {
	for _, sp := range slices.Concat(c.Changed, c.Removed) {
		names = append(names, serviceOf(sp))
	}
	slices.SortFunc(names, tracker.Name.Compare)
	return slices.Compact(names)
}

func (l *serviceLog) note(name tracker.Name, before, after []*plan.ServicePort) {
	idleBefore, idle := len(plan.ServicePortsWithoutEndpoint(before)), len(plan.ServicePortsWithoutEndpoint(after))
	switch {
	case idle == 0:
		delete(l.idleServices, name)
	case idleBefore == 0 || l.idleServices[name] == nil:
		l.idleServices[name] = &idleService{since: time.Now()}
	default:
		l.idleServices[name].service = nil
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

// unservedPortFaults returns a Notice for each port without endpoints. The latest Notice comes first.
// unservedPortFaults recomputes only the Notices that may have changed.
func (l *serviceLog) unservedPortFaults() []fault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stale {
		return l.faults
	}
	l.stale = false
	total, changed := 0, false
	for name, idle := range l.idleServices {
		svc := l.snap.Find(name) // svc is nil if the Service was deleted but is still in the kernel
		if idle.service == nil || svc != idle.service {
			changed = true
			idle.service, idle.faults = svc, l.faultsOf(svc, idle.since)
		}
		total += len(idle.faults)
	}
	if !changed && total == len(l.faults) {
		return l.faults
	}
	out := make([]fault.Fault, 0, total)
	for _, idle := range l.idleServices {
		out = append(out, idle.faults...)
	}
	slices.SortFunc(out, func(a, b fault.Fault) int {
		return cmp.Or(b.Since.Compare(a.Since), a.Object.Compare(b.Object), strings.Compare(a.Field, b.Field))
	})
	l.faults = out
	return out
}

func (l *serviceLog) faultsOf(svc *tracker.Service, since time.Time) []fault.Fault {
	if svc == nil {
		return nil
	}
	faults := planner.UnservedPortFaults(svc, l.plan)
	for i := range faults {
		faults[i].Since = since
	}
	return faults
}

// maxProblemLines is the maximum number of problems that Edgeway logs for one plan. The status and the metrics include
// all problems.
const maxProblemLines = 50

// problemLog logs each object problem once, when it appears.
type problemLog struct {
	logger     *slog.Logger
	ignoredIDs []string         // ignoredIDs holds the IDs of notices that problemLog does not log
	lastLists  [2][]fault.Fault // lastLists holds the lists from the previous call
}

// note logs the new problems of a plan. objects holds the problems that the sources found, and planned holds the
// problems that the planner found. Both lists are sorted. Most plans change few problems, so note skips the prefix and
// the suffix that each list shares with the list from the previous call. The caller must not modify the lists.
func (l *problemLog) note(objects, planned []fault.Fault) {
	lines := 0
	for i, list := range [2][]fault.Fault{objects, planned} {
		before, after := difference(l.lastLists[i], list)
		l.lastLists[i] = list
		known := make(map[fault.Fault]struct{}, len(before))
		for _, p := range before {
			known[p] = struct{}{}
		}
		for _, p := range after {
			if _, is := known[p]; is || p.Ignored(l.ignoredIDs) || isOfHost(p) {
				continue
			}
			known[p] = struct{}{}
			if lines++; lines <= maxProblemLines {
				level := slog.LevelWarn
				if p.Severity == fault.Notice {
					level = slog.LevelInfo
				}
				l.logger.Log(context.Background(), level, "ignoring the invalid part of an object",
					"message_id", messageid.ObjectProblem, "object", p.Object.String(), "at", p.Position,
					"field", p.Field, "fault", p.Message, "fix", p.Fix)
			}
		}
	}
	if lines > maxProblemLines {
		l.logger.Warn("more objects have problems, see edgeway status", "more", lines-maxProblemLines)
	}
}

// difference returns a and b without their common prefix and suffix.
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
