package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

const (
	// recoveryLimit is the maximum time from the end of all faults until the kernel's rules match the sources' objects.
	// The daemon notices a silent watch after at most 75 s (kube: shortWatch, shortJitter and overtime). The list
	// request after a watch may wait for the reflector (3 s), for the source's request limit (15 s) and for the random
	// delay that spreads the hosts' requests (4 s). A stalled Apply times out after 61 s, and the next Apply follows
	// within 30 s.
	recoveryLimit = 2 * time.Minute
	// graceLimit is the maximum time for which the daemon may report a healthy host while the kernel differs from the
	// plan: health.GracePeriod plus the time between two comparisons of the kernel with the plan.
	graceLimit = health.GracePeriod + 2*time.Second
	// unreportedLimit is the maximum time for which the kernel may differ from the sources while the daemon reports no
	// fault. In the worst case, both a watch and the next list request go silent.
	unreportedLimit = 2 * recoveryLimit
	// maxLines and maxRequests are the maximum numbers of log lines and requests per hour while faults occur no more
	// than a few minutes apart. While list requests fail, the daemon lists each of four resources no more than once
	// every 10 s. If a watch ends early, the daemon starts another watch after a second. The maximum in 200 seeds was
	// 1,000 requests an hour. Each fault, the end of each fault and each full sync adds a line to the log. A search for
	// refused ServicePorts adds a few dozen lines.
	maxLines, maxRequests = 1000, 2400
)

func (s *simulation) expected() *plan.Plan {
	if s.wanted != nil {
		return s.wanted
	}
	t := tracker.New(tracker.Layer{Name: "file"}, tracker.Layer{Name: "kube"})
	var c convert.Converter
	add := func(sink source.Sink, svc *service, namespace string) {
		var spec corev1.Service
		var slice discoveryv1.EndpointSlice
		must(json.Unmarshal(encode(svc.spec(namespace)), &spec))
		must(json.Unmarshal(encode(svc.slice(namespace)), &slice))
		if o, ok := c.Service(&spec); ok {
			o.Manifest = namespace == filesNamespace
			sink.Upsert(o)
		}
		if o, ok := c.EndpointSlice(&slice); ok {
			o.Manifest = namespace == filesNamespace
			sink.Upsert(o)
		}
	}
	for _, svc := range s.services {
		add(t.Sink("kube"), svc, apiNamespace)
	}
	for _, file := range s.files.services {
		for _, svc := range file {
			add(t.Sink("file"), svc, filesNamespace)
		}
	}
	t.Sink("file").Synced()
	t.Sink("kube").Synced()
	snap, _ := t.Snapshot()
	opts := s.plannerOptions
	s.wanted, _ = planner.New(opts).Plan(snap, s.host.Host(), nil)
	return s.wanted
}

func (s *simulation) look() {
	now := time.Now()
	s.mu.Lock()
	violations := s.violations
	s.violations = nil
	s.mu.Unlock()
	for _, v := range violations {
		s.failf("%s", v)
	}
	if s.process == nil {
		s.held, s.honest = now, now
		return
	}
	s.verifyExit()
	if s.process == nil {
		return
	}
	state, report := s.process.core.Pipeline().State(), s.process.core.Health().Report()
	difference := s.planDifference(&state)
	switch at := s.kernel.latestApply(); {
	case difference == "":
		s.held = now
	case at.After(s.held): // the kernel holds a plan that may be older than the newest plan
		s.held = at
	case s.process.started.After(s.held):
		s.held = s.process.started
	}
	if report.Healthy && now.Sub(s.held) > graceLimit {
		s.failf("the host is healthy, though the kernel lacks the plan for %s: %s", now.Sub(s.held), difference)
		s.held = now
	}
	if s.lagging || fault.WorstSeverity(report.Faults) > fault.Notice ||
		s.kernel.difference(s.expected(), s.isExcusedOrBlamed) == "" {
		s.honest = now
	}
	if now.Sub(s.honest) > unreportedLimit {
		s.failf("nothing tells that what is served is old: for %s %s", now.Sub(s.honest),
			s.kernel.difference(s.expected(), s.isExcusedOrBlamed))
		s.honest = now
	}
	if at := s.process.core.Pipeline().Heartbeat(); now.Sub(at) > graceLimit {
		s.failf("the loop of the pipeline shows no life for %s", now.Sub(at))
	}
	s.verifyStoppedCores()
	s.verifySearched()
	// The simulation ignores a source's objects and their problems until the source has listed all objects.
	if !slices.ContainsFunc(report.Faults, func(c fault.Fault) bool { return c.ID == "source-kube" }) {
		s.verifyNamed(state.Problems())
	}
}

// planDifference describes how the kernel differs from the daemon's own plan. Quarantined ServicePorts may be missing
// from the kernel.
func (s *simulation) planDifference(state *pipeline.State) string {
	wanted := state.Plan
	if wanted == nil { // the kernel must still hold the plan from before the reload
		wanted = state.AppliedPlan
	}
	if wanted == nil {
		return "there is no plan"
	}
	out := map[portKey]bool{}
	for _, q := range state.Quarantined {
		out[portKey{q.Name, q.Family}] = true
	}
	return s.kernel.difference(wanted, func(k portKey) bool { return out[k] })
}

// isExcused reports whether the kernel recently refused the given ServicePort. Until the next full sync, the kernel may
// lack a refused ServicePort or hold its previous version.
func (s *simulation) isExcused(k portKey) bool {
	return time.Now().Before(s.refused[k.name.Namespace+"/"+k.name.Name])
}

// isExcusedOrBlamed reports whether the kernel recently refused the given ServicePort, or a component recently panicked
// while processing the ServicePort's Service.
func (s *simulation) isExcusedOrBlamed(k portKey) bool {
	return s.isExcused(k) || time.Now().Before(s.blamed[k.name.Namespace+"/"+k.name.Name])
}

// awaitRecovery waits until the kernel and the daemon are in the required state, and fails the test after
// recoveryLimit.
func (s *simulation) awaitRecovery() {
	began := time.Now()
	var why string
	for time.Since(began) < recoveryLimit {
		if why = s.stateDifference(); why == "" {
			s.slowest = max(s.slowest, time.Since(began))
			return
		}
		s.advance(time.Second)
		if s.failed {
			return
		}
	}
	s.failf("not as it must be %s after the end of all faults: %s", recoveryLimit, why)
}

// stateDifference describes how the kernel or the daemon differs from the required state, or returns "" if nothing
// differs.
func (s *simulation) stateDifference() string {
	for _, k := range s.stages() {
		if d := k.difference(s.expected(), s.isExcused); d != "" {
			return d
		}
	}
	report := s.process.core.Health().Report()
	for _, c := range report.Faults {
		if c.Severity > fault.Notice && !(c.ID == "quarantine" && len(s.refused) > 0 || c.ID == "panic" &&
			time.Now().Before(s.panicUntil)) {
			return "a fault: " + c.ID + ": " + c.Message
		}
	}
	if !report.Ready {
		return "the host is not ready"
	}
	return ""
}

func (s *simulation) checkBounds() {
	// The limits cover at least one hour, because even a short run may contain many restarts, and the daemon logs the
	// objects' faults again after each restart.
	hours := max(1, time.Since(s.begun).Hours())
	if lines := s.logs.total(); float64(lines) > maxLines*hours {
		s.failf("%d lines in the log in %.1f hours: %v", lines, hours, s.logs.count)
	}
	if n := s.api.asked(); float64(n) > maxRequests*hours {
		s.failf("%d requests in %.1f hours", n, hours)
	}
}

func (s *simulation) gone(from *kernel, k portKey) { s.recordLoss(from, k, "was removed") }
func (s *simulation) empty(from *kernel, k portKey) {
	s.recordLoss(from, k, "lost all of its endpoints")
}

// recordLoss records a violation. If the kernel refuses ServicePorts without naming them, the pipeline searches for
// them by bisection. ServicePorts that the kernel accepts may be missing only during this search.
func (s *simulation) recordLoss(from *kernel, k portKey, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !strings.HasPrefix(k.name.Name, "stays-") || s.isExcusedOrBlamed(k):
	case s.searching.Load() > 0:
		s.searched[k] = time.Now()
	default:
		s.violations = append(s.violations, fmt.Sprintf("%s: %s %s, though it was never deleted", from.name, k, how))
	}
}

// maxSearchTime is the maximum duration of a search by bisection. A search calls Apply a few dozen times, and each call
// takes up to 5 s. If the daemon restarts during a search, the time is measured from the restart.
const maxSearchTime = recoveryLimit

// verifySearched fails if a ServicePort that the kernel removed during a search is still missing after maxSearchTime.
func (s *simulation) verifySearched() {
	s.mu.Lock()
	searched := maps.Clone(s.searched)
	s.mu.Unlock()
	for k, at := range searched {
		if s.process.started.After(at) {
			at = s.process.started
		}
		if !s.kernel.holds(k) && !s.isExcused(k) && time.Since(at) < maxSearchTime {
			continue
		}
		if !s.kernel.holds(k) && !s.isExcusedOrBlamed(k) {
			s.failf("%s was removed while others were refused, and does not come back", k)
		}
		s.mu.Lock()
		delete(s.searched, k)
		s.mu.Unlock()
	}
}
