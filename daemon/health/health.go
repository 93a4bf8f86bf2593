// Package health says whether the daemon does its work, as a list of known faults.
//
// Every fault is a named condition with a sentence for a person. Some are only a warning (an API server
// that is unreachable: its last objects are still served); some make the host unhealthy, at once or when
// they last longer than a grace time. The answers of /healthz, /livez and /readyz, the status line of
// the service manager and `edgeway status` are all made of the same report.
package health

import (
	"slices"
	"time"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
)

// Grace is how long the kernel may disagree with what is wanted before the host is unhealthy. It is
// kube-proxy's: twice its sync period of 30 s.
const Grace = time.Minute

// Level says how bad a condition is.
type Level string

// The levels. With a warning the host still serves the Services that it knows. With a problem of the host connections
// fail although the rules are right: nobody is sent away for it, as another host may have the same, but it is no
// health.
const (
	Warning   Level = "warning"
	Problem   Level = "problem"
	Unhealthy Level = "unhealthy"
)

// Condition is one fault that holds now.
type Condition struct {
	// Name is one of first-sync, backend-sync, quarantine, leftovers, nodeport-addresses, nodeport-range,
	// services-too-big, node-leaving, source-NAME, follower-NAME, kubeconfig-refused, kubeconfig-insecure,
	// credential-expiry, endpoint-checks, services-dead, ports, fast-path, fallback, removed-key and panic, or that of
	// a check of daemon/doctor, which may have several.
	Name  string    `json:"name"`
	Level Level     `json:"level"`
	Since time.Time `json:"since,omitzero"`
	// Message is a plain sentence.
	Message string `json:"message"`
	// Mend is the command that mends it, if there is one.
	Mend string `json:"mend,omitempty"`
}

// State is the health in one word.
type State string

// The states. A host is degraded when connections fail although the rules are right, and healthy when it is neither.
const (
	StateHealthy   State = "healthy"
	StateDegraded  State = "degraded"
	StateUnhealthy State = "unhealthy"
)

// Report is the health at one moment.
type Report struct {
	Time time.Time
	// LastSync is when the kernel last agreed with what was wanted; zero: never.
	LastSync time.Time
	// Synced says that the first sync has succeeded.
	Synced bool
	// Healthy says that no condition is Unhealthy. A Node that leaves does not count.
	Healthy bool
	// NodeEligible is false when the Node is being deleted or the cluster autoscaler is about to. A
	// host without a Node is eligible.
	NodeEligible bool
	// Ready says that the host is healthy and eligible, and that what it serves is what it is configured to: the paths
	// of manifests have been read since the start. Last-known Services of an API server that is unreachable do count.
	Ready bool
	// Conditions has the unhealthy ones first, then the problems.
	Conditions []Condition
}

// State sums the conditions up.
func (r Report) State() State {
	switch {
	case !r.Healthy:
		return StateUnhealthy
	case slices.ContainsFunc(r.Conditions, func(c Condition) bool { return c.Level == Problem }):
		return StateDegraded
	}
	return StateHealthy
}

// Summary is one line: "healthy", or the worst problem.
func (r Report) Summary() string {
	switch {
	case len(r.Conditions) == 0:
		return "healthy"
	case r.State() == StateDegraded:
		return "degraded: " + r.Conditions[0].Message
	case r.Healthy:
		return "serving, but: " + r.Conditions[0].Message
	}
	return "unhealthy: " + r.Conditions[0].Message
}

// Pipeline is where the state of the syncs comes from.
type Pipeline interface{ State() pipeline.State }

// Source is the part of a source of objects that says how healthy it is.
type Source interface {
	Name() string
	Status() source.Status
}

// Checker makes reports.
type Checker struct {
	pipeline Pipeline
	sources  []Source
	others   []func() []Condition
	names    []string // of the conditions that the others may have
}

// New gives a Checker of these parts.
func New(p Pipeline, sources ...Source) *Checker {
	return &Checker{pipeline: p, sources: sources}
}

// Include adds the conditions of another part to each report; it has these names. The function may be called from any
// goroutine. Call it before the first report.
func (c *Checker) Include(conditions func() []Condition, names ...string) {
	c.others = append(c.others, conditions)
	c.names = append(c.names, names...)
}

// Names tells of each condition that there can be whether it holds.
func (c *Checker) Names() map[string]bool {
	out := map[string]bool{"first-sync": false, "backend-sync": false, "quarantine": false, "node-leaving": false}
	for _, name := range c.names {
		out[name] = false
	}
	for _, src := range c.sources {
		out["source-"+src.Name()] = false
	}
	for _, f := range c.pipeline.State().Followers {
		out["follower-"+f.Name] = false
	}
	for _, cond := range c.Report().Conditions {
		out[cond.Name] = true
	}
	return out
}

// Healthy is Report().Healthy.
func (c *Checker) Healthy() bool { return c.Report().Healthy }

// Report looks at all parts. It costs a few microseconds.
func (c *Checker) Report() Report {
	now, state := time.Now(), c.pipeline.State()
	r := Report{Time: now, LastSync: state.Backend.LastSync, Synced: state.Synced(), Healthy: true, NodeEligible: true}
	var bad, problems, warnings []Condition
	add := func(conditions ...Condition) {
		for _, cond := range conditions {
			switch cond.Level {
			case Unhealthy:
				bad = append(bad, cond)
				r.Healthy = false
			case Problem:
				problems = append(problems, cond)
			default:
				warnings = append(warnings, cond)
			}
		}
	}
	if state.Synced() {
		add(backendSync(&state, now)...)
	} else {
		add(c.firstSync(&state))
	}
	add(quarantine(&state)...)
	add(followers(&state)...)
	if leaving, cond := nodeLeaving(&state); leaving {
		r.NodeEligible = false
		add(cond)
	}
	add(c.sourceFaults(now)...)
	for _, conditions := range c.others {
		add(conditions()...)
	}
	r.Conditions = slices.Concat(bad, problems, warnings)
	r.Ready = r.Healthy && r.NodeEligible && !slices.ContainsFunc(c.sources, func(src Source) bool {
		st := src.Status()
		return st.Partial && !st.Synced
	})
	return r
}
