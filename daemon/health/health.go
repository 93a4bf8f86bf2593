// Package health reports the daemon's health as a list of known faults.
//
// The responses of /healthz, /livez and /readyz, the status line of systemd, and the output of "edgeway status" are
// all derived from the same report.
package health

import (
	"maps"
	"slices"
	"time"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// Grace is the time for which the kernel may differ from the plan before the host is unhealthy. kube-proxy uses the
// same value, which is twice its sync period of 30 s.
const Grace = time.Minute

// State summarizes the health in one word.
type State string

// A host is degraded if connections fail although the rules are correct.
const (
	StateHealthy   State = "healthy"
	StateDegraded  State = "degraded"
	StateUnhealthy State = "unhealthy"
)

// Report is the health at one point in time.
type Report struct {
	Time time.Time `json:"time"`
	// LastSync is the time when the kernel last matched the plan. LastSync is zero if the kernel has never matched
	// the plan.
	LastSync time.Time `json:"lastSync,omitzero"`
	// Synced reports whether the first sync has succeeded.
	Synced bool `json:"synced"`
	// Healthy is false if any fault is Unhealthy.
	Healthy bool `json:"healthy"`
	// NodeEligible is false if the Node is being deleted, or if the cluster autoscaler is about to delete the Node. A
	// host without a Node is eligible.
	NodeEligible bool `json:"nodeEligible"`
	// Ready reports whether the host is healthy, the Node is eligible, and all manifests have been read since the
	// start. A host that serves the last-known Services of an unreachable API server can be ready, too.
	Ready bool `json:"ready"`
	// Faults lists the faults, the worst first.
	Faults []fault.Fault `json:"faults"`
}

// State derives the state from the faults.
func (r Report) State() State {
	switch {
	case !r.Healthy:
		return StateUnhealthy
	case fault.Worst(r.Faults) >= fault.Problem:
		return StateDegraded
	}
	return StateHealthy
}

// Summary returns one line: "healthy", or the worst fault.
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

// Pipeline provides the state of the syncs.
type Pipeline interface{ State() pipeline.State }

// Source provides the health of a source of objects.
type Source interface {
	Name() string
	Status() source.Status
}

// Checker builds reports from the faults of all components.
type Checker struct {
	pipeline Pipeline
	sources  []Source
	faults   fault.Set
}

// New returns a Checker for the faults of the pipeline and the sources.
func New(p Pipeline, sources ...Source) *Checker {
	c := &Checker{pipeline: p, sources: sources}
	c.Include(c.pipelineFaults, "first-sync", "backend-sync", "quarantine", "node-leaving")
	c.Include(c.sourceFaults)
	return c
}

// Include adds a component whose faults have the given IDs. faults may be called from any goroutine. Include must not
// be called after the first report.
func (c *Checker) Include(faults func() []fault.Fault, ids ...string) {
	c.faults.Include(faults, ids...)
}

// Ignore omits the notices with the given IDs. Ignore must not be called after the first report.
func (c *Checker) Ignore(ids []string) { c.faults.Ignore(ids...) }

// IDs returns all known IDs. The value of an ID is true if a fault with that ID is more than a notice.
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

// Faults returns the faults of all components, the worst first. The result may contain thousands of faults.
func (c *Checker) Faults() []fault.Fault { return c.faults.All() }

// Healthy returns Report().Healthy.
func (c *Checker) Healthy() bool { return c.Report().Healthy }

// Report builds a report from the faults of all components. Report takes a few microseconds.
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
