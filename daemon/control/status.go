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

// maxProblems bounds the list of problems in a Status. The number of problems is always complete.
const maxProblems = 50

// Status is the state of the daemon at one moment. A client gets only the fields of State that have JSON names.
type Status struct {
	Version  string    `json:"version"`
	Revision string    `json:"revision,omitempty"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Config   string    `json:"config"`

	// Health is healthy, degraded (connections fail although the rules are right) or unhealthy.
	Health  health.State `json:"state"`
	Summary string       `json:"summary"`
	health.Report
	// Problems holds the faults of objects.
	Problems StatusProblems `json:"problems"`
	// Ignored holds the IDs of the notices that are omitted from Faults.
	Ignored []string `json:"ignored,omitempty"`

	pipeline.State
	Counts pipeline.Counts `json:"counts"` // of the plan in the kernel
	// Node is the host, or nil if there is no plan yet. NodeObject reports whether the cluster has a Node for the host.
	Node       *plan.Node `json:"node,omitempty"`
	Zone       string     `json:"zone,omitempty"`
	NodeObject bool       `json:"nodeObject"`

	Sources   []StatusSource `json:"sources"`
	LastKnown LastKnown      `json:"lastKnown"`
	// Checks is absent if no endpoints are checked, and FastPath is absent if there is no fast path.
	Checks   *StatusChecks   `json:"checks,omitempty"`
	FastPath *StatusFastPath `json:"fastPath,omitempty"`
	// Shortcut says how many connections take the backend's shortcut. Shortcut is absent if the backend has no
	// shortcut.
	Shortcut []string `json:"shortcut,omitempty"`
}

// StatusProblems holds the number of faults of objects, and the first of these faults.
type StatusProblems struct {
	Total int           `json:"total"`
	First []fault.Fault `json:"first"` // at most 50
}

// StatusSource is the state of a source.
type StatusSource struct {
	Name string `json:"name"`
	source.Status
}

// LastKnown is the state of the sources that is saved on disk.
type LastKnown struct {
	// Serving reports whether the daemon serves the state on disk.
	Serving bool `json:"serving"`
	// SavedAt is the time when the state was written. SavedAt is absent if there is no state on disk.
	SavedAt time.Time `json:"savedAt,omitzero"`
}

// StatusChecks counts the endpoints that are checked.
type StatusChecks struct {
	Endpoints int `json:"endpoints"`
	Dead      int `json:"dead"` // the endpoints that do not answer
}

// StatusFastPath holds the connections that take the fast path instead of the rules.
type StatusFastPath struct {
	proxiers.Offloading
	// Err is the reason why the connections could not be read.
	Err string `json:"error,omitempty"`
}

// NewStatus returns the part of a Status that follows from the pipeline and the health report.
func NewStatus(state pipeline.State, report health.Report) Status {
	problems := state.Problems()
	s := Status{
		PID: os.Getpid(), Health: report.State(), Summary: report.Summary(), Report: report, State: state,
		Counts: pipeline.Count(state.InForce),
		Problems: StatusProblems{
			Total: len(problems), First: append([]fault.Fault{}, problems[:min(len(problems), maxProblems)]...),
		},
	}
	s.Faults = append([]fault.Fault{}, s.Faults...)
	// Right after a reload, the plan in force is the only plan.
	if p := cmp.Or(state.Plan, state.InForce); p != nil {
		s.Node = p.Node
	}
	if snap := state.Snapshot; snap != nil && snap.Node != nil {
		s.NodeObject, s.Zone = true, snap.Node.Zone
	}
	return s
}
