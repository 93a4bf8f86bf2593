package control

import (
	"cmp"
	"net/netip"
	"os"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// maxProblems bounds the list in a Status; their number is always complete.
const maxProblems = 50

// Status is the state of the daemon at one moment.
type Status struct {
	Version  string    `json:"version"`
	Revision string    `json:"revision,omitempty"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Time     time.Time `json:"time"` // of this status
	Config   string    `json:"config"`

	// Healthy, Ready and NodeEligible are as /livez and /readyz say.
	Healthy      bool `json:"healthy"`
	Ready        bool `json:"ready"`
	NodeEligible bool `json:"nodeEligible"`
	// State is healthy, degraded (connections fail although the rules are right) or unhealthy.
	State   health.State  `json:"state"`
	Summary string        `json:"summary"`
	Faults  []fault.Fault `json:"faults"`

	Node      StatusNode      `json:"node"`
	Sources   []StatusSource  `json:"sources"`
	LastKnown LastKnown       `json:"lastKnown"`
	Counts    pipeline.Counts `json:"counts"` // in the kernel
	Backend   StatusStage     `json:"backend"`
	Followers []StatusStage   `json:"followers"`
	OutOfSync time.Time       `json:"outOfSync,omitzero"` // since when
	Drift     StatusDrift     `json:"drift"`
	// Quarantined is what the kernel refuses: "namespace/name:port/TCP (IPv4) is not served: why".
	Quarantined []string `json:"quarantined"`
	// NotListening are the NodePorts on loopback, the healthCheckNodePorts, and the ports of the daemon itself that are
	// not served because another program listens there, or for a similar reason: "namespace/name:port/TCP:
	// 127.0.0.1:30080 is not served: why".
	NotListening []string `json:"notListening"`
	// Checks is absent where no endpoints are checked.
	Checks *StatusChecks `json:"checks,omitempty"`
	// FastPath is absent where it is not enabled.
	FastPath *StatusFastPath `json:"fastPath,omitempty"`
	// Shortcut says how many connections take the backend's shortcut; absent where it has none.
	Shortcut []string       `json:"shortcut,omitempty"`
	Problems StatusProblems `json:"problems"`
	// Ignored has the IDs whose notices Faults leaves out.
	Ignored []string `json:"ignored,omitempty"`
}

// StatusNode is the host.
type StatusNode struct {
	Name string `json:"name"`
	Zone string `json:"zone,omitempty"`
	// Object says that there is a Node object.
	Object        bool         `json:"object"`
	NodePortAddrs []netip.Addr `json:"nodePortAddresses"`
}

// StatusSource is one source.
type StatusSource struct {
	Name        string    `json:"name"`
	Synced      bool      `json:"synced"`
	LastContact time.Time `json:"lastContact,omitzero"`
	// Staleness is in seconds; absent: there was no contact yet.
	Staleness *float64 `json:"stalenessSeconds,omitempty"`
	Err       string   `json:"error,omitempty"`
	// Partial says that the error concerns a part of the source: what else it has is current.
	Partial bool `json:"partial,omitempty"`
	// Refused says that the error is what the source answers: it is reached.
	Refused bool `json:"refused,omitempty"`
}

// LastKnown is the state on disk.
type LastKnown struct {
	// Serving says that what is served comes from it.
	Serving bool `json:"serving"`
	// SavedAt is when it was written; absent: there is none.
	SavedAt time.Time `json:"savedAt,omitzero"`
}

// StatusStage is the backend or a follower.
type StatusStage struct {
	Name     string    `json:"name"`
	LastSync time.Time `json:"lastSync,omitzero"`
	// Seconds, Full and ServicePorts describe the last sync that changed anything.
	Seconds      float64   `json:"seconds,omitempty"`
	Full         bool      `json:"full,omitempty"`
	ServicePorts int       `json:"servicePorts,omitempty"`
	FullSyncs    uint64    `json:"fullSyncs"`
	PartialSyncs uint64    `json:"partialSyncs"`
	Err          string    `json:"error,omitempty"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	Attempts     int       `json:"attempts,omitempty"`
	// Running is when the running sync began; Done of Total ServicePorts, if it reports them.
	Running time.Time `json:"running,omitzero"`
	Done    int       `json:"done,omitempty"`
	Total   int       `json:"total,omitempty"`
}

// StatusDrift counts repairs of rules that another program changed.
type StatusDrift struct {
	Repairs uint64    `json:"repairs"`
	Last    time.Time `json:"last,omitzero"`
	Reason  string    `json:"reason,omitempty"`
}

// StatusProblems are the problems with objects.
type StatusProblems struct {
	Total int           `json:"total"`
	First []fault.Fault `json:"first"` // at most 50
}

// StatusInput is what a Status is made of.
type StatusInput struct {
	Version, Revision, ConfigPath string
	Started                       time.Time
	// Zone is the configured one; empty: the Node object's.
	Zone      string
	State     pipeline.State
	Health    health.Report
	Sources   []health.Source
	LastKnown LastKnown
	// NotListening has a line for each port that is not served.
	NotListening []string
	Checks       *StatusChecks
	FastPath     *StatusFastPath
	Shortcut     []string
	// Ignored has the IDs whose notices are left out.
	Ignored []string
}

// NewStatus makes a Status.
func NewStatus(in StatusInput) Status {
	s := Status{
		Version: in.Version, Revision: in.Revision, PID: os.Getpid(), Started: in.Started, Time: in.Health.Time,
		Config:  in.ConfigPath,
		Healthy: in.Health.Healthy, Ready: in.Health.Ready, NodeEligible: in.Health.NodeEligible,
		State:   in.Health.State(),
		Summary: in.Health.Summary(), Faults: in.Health.Faults,
		LastKnown: in.LastKnown, Counts: pipeline.Count(in.State.InForce), OutOfSync: in.State.OutOfSync,
		Backend:     newStage(&in.State.Backend),
		Drift:       newDrift(in.State.Stages()),
		Quarantined: []string{}, NotListening: in.NotListening, Followers: []StatusStage{}, Sources: []StatusSource{},
		Node: newNode(&in), Checks: in.Checks, FastPath: in.FastPath, Shortcut: in.Shortcut, Ignored: in.Ignored,
		Problems: newProblems(in.State.Problems()),
	}
	s.Backend.Done, s.Backend.Total = in.State.Done, in.State.Total
	if s.Faults == nil {
		s.Faults = []fault.Fault{}
	}
	for _, q := range in.State.Quarantined {
		s.Quarantined = append(s.Quarantined, q.String())
	}
	for i := range in.State.Followers {
		s.Followers = append(s.Followers, newStage(&in.State.Followers[i]))
	}
	for _, src := range in.Sources {
		s.Sources = append(s.Sources, newSource(src.Name(), src.Status(), s.Time))
	}
	return s
}

// newDrift adds up the stages.
func newDrift(stages []pipeline.StageState) (d StatusDrift) {
	for _, st := range stages {
		d.Repairs += st.Drift
		if st.LastDrift.After(d.Last) {
			d.Last, d.Reason = st.LastDrift, st.DriftReason
		}
	}
	return d
}

func newNode(in *StatusInput) StatusNode {
	n := StatusNode{Zone: in.Zone, NodePortAddrs: []netip.Addr{}}
	// Right after a reload there is no plan but the one in force.
	if p := cmp.Or(in.State.Plan, in.State.InForce); p != nil && p.Node != nil {
		n.Name = p.Node.Name
		n.NodePortAddrs = append(n.NodePortAddrs, nodePortAddrs(p.Node)...)
	}
	if snap := in.State.Snapshot; snap != nil && snap.Node != nil {
		n.Object = true
		if n.Zone == "" {
			n.Zone = snap.Node.Zone
		}
	}
	return n
}

func newSource(name string, st source.Status, now time.Time) StatusSource {
	s := StatusSource{
		Name: name, Synced: st.Synced, LastContact: st.LastContact, Err: st.Err, Partial: st.Partial,
		Refused: st.Refused,
	}
	if !st.LastContact.IsZero() {
		staleness := max(0, now.Sub(st.LastContact).Seconds())
		s.Staleness = &staleness
	}
	return s
}

func newStage(st *pipeline.StageState) StatusStage {
	s := StatusStage{
		Name: st.Name, LastSync: st.LastSync, Seconds: st.Duration.Seconds(), Full: st.Full, ServicePorts: st.Size,
		FullSyncs: st.FullSyncs, PartialSyncs: st.PartialSyncs,
		FailingSince: st.Since, Attempts: st.Attempts, Running: st.Running,
	}
	if st.Err != nil {
		s.Err = st.Err.Error()
	}
	return s
}

func newProblems(problems []fault.Fault) StatusProblems {
	first := append([]fault.Fault{}, problems[:min(len(problems), maxProblems)]...)
	return StatusProblems{Total: len(problems), First: first}
}
