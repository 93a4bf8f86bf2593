package control

import (
	"cmp"
	"os"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// maxProblems is the maximum number of problems that a Status lists. StatusProblems.Total counts all problems.
const maxProblems = 50

// Status is the daemon's state at one point in time. Of the embedded pipeline.State, clients receive only the fields
// that have JSON names.
type Status struct {
	Version  string    `json:"version"`
	Revision string    `json:"revision,omitempty"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Config   string    `json:"config"`

	// Health is "healthy", "degraded" (connections fail although the rules are correct) or "unhealthy".
	Health  health.State `json:"state"`
	Summary string       `json:"summary"`
	health.Report
	Problems StatusProblems `json:"problems"`
	// Ignored holds the IDs of the notices that Faults omits.
	Ignored []string `json:"ignored,omitempty"`

	pipeline.State
	Counts pipeline.Counts `json:"counts"` // Counts is the size of the plan in the kernel
	// Node describes this host, or is nil if there is no plan yet. NodeObject reports whether the cluster has a Node
	// object for this host.
	Node       *plan.Node `json:"node,omitempty"`
	Zone       string     `json:"zone,omitempty"`
	NodeObject bool       `json:"nodeObject"`

	Sources   []StatusSource `json:"sources"`
	LastKnown LastKnown      `json:"lastKnown"`
	// Checks is absent if Edgeway checks no endpoints. FastPath is absent if the fast path is not in use.
	Checks   *StatusChecks   `json:"checks,omitempty"`
	FastPath *StatusFastPath `json:"fastPath,omitempty"`
	// Shortcut states how many connections use the backend's shortcut, or is absent if the backend has no shortcut.
	Shortcut []string `json:"shortcut,omitempty"`
}

// StatusProblems holds the first faults found in objects, and the total number of such faults.
type StatusProblems struct {
	Total       int           `json:"total"`
	FirstFaults []fault.Fault `json:"first"` // FirstFaults holds at most maxProblems faults
}

// StatusSource is the state of a source.
type StatusSource struct {
	Name string `json:"name"`
	source.Status
}

// LastKnown describes the saved state of the sources.
type LastKnown struct {
	// Serving reports whether the daemon is serving Services from the saved state.
	Serving bool `json:"serving"`
	// SavedAt is the time when the source last confirmed the saved state, or is absent if there is no saved state.
	SavedAt time.Time `json:"savedAt,omitzero"`
}

// StatusChecks counts the checked and the dead endpoints.
type StatusChecks struct {
	Endpoints int `json:"endpoints"`
	Dead      int `json:"dead"`
}

// StatusFastPath describes the connections that use the fast path and bypass the rules.
type StatusFastPath struct {
	proxiers.Offloading
	// Err is the reason why Edgeway could not read the fast path's connections.
	Err string `json:"error,omitempty"`
}

// NewStatus returns a Status in which only the fields from the pipeline and the health report are set.
func NewStatus(state pipeline.State, report health.Report) Status {
	problems := state.Problems()
	s := Status{
		PID: os.Getpid(), Health: report.State(), Summary: report.Summary(), Report: report, State: state,
		Counts: pipeline.Count(state.AppliedPlan),
		Problems: StatusProblems{
			Total: len(problems), FirstFaults: append([]fault.Fault{}, problems[:min(len(problems), maxProblems)]...),
		},
	}
	s.Faults = append([]fault.Fault{}, s.Faults...)
	// Immediately after a reload, the applied plan is the only plan.
	if p := cmp.Or(state.Plan, state.AppliedPlan); p != nil {
		s.Node = p.Node
	}
	if snap := state.Snapshot; snap != nil && snap.Node != nil {
		s.NodeObject, s.Zone = true, snap.Node.Zone
	}
	return s
}
