// Package health reports the daemon's health as a list of known faults.
//
// The responses of /healthz, /livez and /readyz, systemd's status line, and the output of "edgeway status" all come
// from the same report.
package health

import (
	"slices"
	"time"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// GracePeriod is the maximum time for which the kernel's state may differ from the plan on a healthy host. kube-proxy
// uses the same value: twice its sync period of 30 s.
const GracePeriod = time.Minute

// State summarizes the host's health in one word.
type State string

// A host is degraded if connections fail although the rules are correct.
const (
	StateHealthy   State = "healthy"
	StateDegraded  State = "degraded"
	StateUnhealthy State = "unhealthy"
)

// Report is the daemon's health at one point in time.
type Report struct {
	Time time.Time `json:"time"`
	// LastSync is the time when the kernel's state last matched the plan, or zero if it has never matched.
	LastSync time.Time `json:"lastSync,omitzero"`
	// Synced reports whether the first sync has succeeded.
	Synced bool `json:"synced"`
	// Healthy is false if any fault is Unhealthy.
	Healthy bool `json:"healthy"`
	// NodeEligible is false if the Node is being deleted, or if the cluster autoscaler is about to delete it. A host
	// without a Node is eligible.
	NodeEligible bool `json:"nodeEligible"`
	// Ready reports whether the host is healthy, the Node is eligible, and Edgeway has read all manifests since it
	// started. A host can be ready even if it serves the last-known Services because the API server is unreachable.
	Ready bool `json:"ready"`
	// Faults lists the faults, the worst first.
	Faults []fault.Fault `json:"faults"`
}

// State returns the health state that the faults imply.
func (r Report) State() State {
	switch {
	case !r.Healthy:
		return StateUnhealthy
	case fault.WorstSeverity(r.Faults) >= fault.Problem:
		return StateDegraded
	}
	return StateHealthy
}

// Summary returns one line: "healthy", or the worst fault.
func (r Report) Summary() string {
	switch {
	case fault.WorstSeverity(r.Faults) <= fault.Notice:
		return "healthy"
	case r.State() == StateDegraded:
		return "degraded: " + r.Faults[0].String()
	case r.Healthy:
		return "serving, but: " + r.Faults[0].String()
	}
	return "unhealthy: " + r.Faults[0].String()
}

// Pipeline provides the state of the sync pipeline.
type Pipeline interface{ State() pipeline.State }

// Checker builds reports from the faults of all components.
type Checker struct {
	pipeline Pipeline
	sources  []source.Source
	faults   fault.Set
}

// New returns a Checker for the faults of the pipeline and the sources.
func New(p Pipeline, sources ...source.Source) *Checker {
	c := &Checker{pipeline: p, sources: sources}
	c.Include(c.pipelineFaults)
	c.Include(c.sourceFaults)
	return c
}

// Include adds a function that reports a component's faults. The Checker may call faults from any goroutine. Callers
// must not call Include after the first report.
func (c *Checker) Include(faults func() []fault.Fault) { c.faults.Include(faults) }

// Ignore excludes the notices with the given IDs from reports. Callers must not call Ignore after the first report.
func (c *Checker) Ignore(ids []string) { c.faults.Ignore(ids...) }

// IDs returns a map with all known fault IDs. The value for an ID is true if a current fault with this ID is more
// severe than a notice.
func (c *Checker) IDs() map[string]bool { return c.faults.IDs() }

// Faults returns the faults of all components, the worst first. The result may contain thousands of faults.
func (c *Checker) Faults() []fault.Fault { return c.faults.All() }

// Healthy returns Report().Healthy.
func (c *Checker) Healthy() bool { return c.Report().Healthy }

// Report builds a report from the faults of all components. Building a report takes a few microseconds.
func (c *Checker) Report() Report {
	state, faults := c.pipeline.State(), c.Faults()
	r := Report{
		Time: time.Now(), LastSync: state.Backend.LastSync, Synced: state.Synced(), NodeEligible: !leaving(&state),
		Faults: fault.Truncate(faults), Healthy: fault.WorstSeverity(faults) < fault.Unhealthy,
	}
	r.Ready = r.Healthy && r.NodeEligible && !slices.ContainsFunc(c.sources, func(src source.Source) bool {
		st := src.Status()
		return st.Partial && !st.Synced
	})
	return r
}
