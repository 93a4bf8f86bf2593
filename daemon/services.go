package daemon

import (
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

// serviceLog logs which Services come, go, lose their last endpoint or get one. It knows those without an endpoint, so
// that its faults cost what they are, not what the plan is. Its methods may be called from any goroutine.
type serviceLog struct {
	logger *slog.Logger
	lines  *journal.Damper

	mu sync.Mutex
	// idle has the Services with a port without an endpoint, and since when. The time is zero if it was so at the start.
	idle   map[tracker.Name]time.Time
	snap   *tracker.Snapshot // of the last sync
	plan   *plan.Plan
	faults []fault.Fault // of snap and plan, unless stale
	stale  bool
	// began is the time of the first sync, and starting says that the sources still list their objects.
	began    time.Time
	starting bool
}

// startTime bounds the time after the first sync in which the objects of the sources are no changes.
const startTime = time.Minute

func newServiceLog(logger *slog.Logger, lines *journal.Damper) *serviceLog {
	return &serviceLog{logger: logger, lines: lines, idle: map[tracker.Name]time.Time{}}
}

// synced takes each sync of the backend.
func (l *serviceLog) synced(snap *tracker.Snapshot, p *plan.Plan, s pipeline.Synced) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snap, l.plan, l.stale = snap, p, true
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

// start takes a plan as what there was before all changes.
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

// changedServices returns the Services of a change, each once.
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
		if svc == nil { // the kernel still has it
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
