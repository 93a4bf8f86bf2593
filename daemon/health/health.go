// Package health says whether the daemon does its work, as a list of known faults.
//
// The answers of /healthz, /livez and /readyz, the status line of the service manager and edgeway status are all made
// from the same report.
package health

import (
	"maps"
	"slices"
	"time"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// Grace is how long the kernel may disagree with what is wanted before the host is unhealthy. It is
// kube-proxy's: twice its sync period of 30 s.
const Grace = time.Minute

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
	Time time.Time `json:"time"`
	// LastSync is when the kernel last agreed with what was wanted; zero: never.
	LastSync time.Time `json:"lastSync,omitzero"`
	// Synced says that the first sync has succeeded.
	Synced bool `json:"synced"`
	// Healthy says that no fault is Unhealthy. A Node that leaves does not count.
	Healthy bool `json:"healthy"`
	// NodeEligible is false when the Node is being deleted or the cluster autoscaler is about to. A
	// host without a Node is eligible.
	NodeEligible bool `json:"nodeEligible"`
	// Ready says that the host is healthy and eligible, and that what it serves is what it is configured to: the paths
	// of manifests have been read since the start. Last-known Services of an API server that is unreachable do count.
	Ready bool `json:"ready"`
	// Faults has the worst first.
	Faults []fault.Fault `json:"faults"`
}

// State returns what the faults amount to.
func (r Report) State() State {
	switch {
	case !r.Healthy:
		return StateUnhealthy
	case fault.Worst(r.Faults) >= fault.Problem:
		return StateDegraded
	}
	return StateHealthy
}

// Summary is one line: "healthy", or the worst fault.
func (r Report) Summary() string {
	switch {
	case fault.Worst(r.Faults) <= fault.Notice:
		return "healthy"
	case r.State() == StateDegraded:
		return "degraded: " + r.Faults[0].String()
	case r.Healthy:
		return "serving, but: " + r.Faults[0].String()
	}
	return "unhealthy: " + r.Faults[0].String()
}

// Pipeline is where the state of the syncs comes from.
type Pipeline interface{ State() pipeline.State }

// Source is the part of a source of objects that says how healthy it is.
type Source interface {
	Name() string
	Status() source.Status
}

// Checker makes reports from the faults of all parts.
type Checker struct {
	pipeline Pipeline
	sources  []Source
	faults   fault.Set
}

// New returns a Checker that knows the faults of these parts.
func New(p Pipeline, sources ...Source) *Checker {
	c := &Checker{pipeline: p, sources: sources}
	c.Include(c.pipelineFaults, "first-sync", "backend-sync", "quarantine", "node-leaving")
	c.Include(c.sourceFaults)
	return c
}

// Include adds the faults of another part, which have these IDs. Any goroutine may call the function. Include must not
// be called after the first report.
func (c *Checker) Include(faults func() []fault.Fault, ids ...string) {
	c.faults.Include(faults, ids...)
}

// Ignore leaves out the notices with these IDs. It must not be called after the first report.
func (c *Checker) Ignore(ids []string) { c.faults.Ignore(ids...) }

// IDs returns for each of the IDs whether there is a fault that is more than a notice.
func (c *Checker) IDs() map[string]bool {
	out := map[string]bool{}
	for _, src := range c.sources {
		out["source-"+src.Name()] = false
	}
	for _, f := range c.pipeline.State().Followers {
		out["follower-"+f.Name] = false
	}
	maps.Copy(out, c.faults.IDs())
	return out
}

// Faults returns the faults of all parts, the worst first. There may be thousands.
func (c *Checker) Faults() []fault.Fault { return c.faults.All() }

// Healthy is Report().Healthy.
func (c *Checker) Healthy() bool { return c.Report().Healthy }

// Report asks all parts. It costs a few microseconds.
func (c *Checker) Report() Report {
	state, faults := c.pipeline.State(), c.Faults()
	r := Report{
		Time: time.Now(), LastSync: state.Backend.LastSync, Synced: state.Synced(), NodeEligible: !leaving(&state),
		Faults: fault.Bounded(faults), Healthy: fault.Worst(faults) < fault.Unhealthy,
	}
	r.Ready = r.Healthy && r.NodeEligible && !slices.ContainsFunc(c.sources, func(src Source) bool {
		st := src.Status()
		return st.Partial && !st.Synced
	})
	return r
}
