package pipeline

import (
	"time"

	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// State is a view of the pipeline at one moment. All it points to is immutable.
type State struct {
	// Snapshot and Plan are the newest; nil: none yet, as the sources have not listed all objects.
	Snapshot *tracker.Snapshot `json:"-"`
	Plan     *plan.Plan        `json:"-"`
	// InForce is the plan that the backend applied last with success; nil: none yet.
	InForce *plan.Plan `json:"-"`
	// OutOfSync is since when the kernel is out of sync; zero: it is in sync.
	OutOfSync time.Time `json:"outOfSync,omitzero"`
	// Queued is when the last change came in.
	Queued time.Time `json:"queued,omitzero"`
	// Backend and Followers are the stages in the order they run.
	Backend     StageState    `json:"backend"`
	Followers   []StageState  `json:"followers,omitempty"`
	Quarantined []Quarantined `json:"quarantined,omitempty"`
	// PlanProblems are the problems that the planner found; Snapshot.Problems has those of the objects.
	PlanProblems []fault.Fault `json:"-"`
	// Done and Total are ServicePorts of the running Apply, if it reports them.
	Done  int `json:"done,omitempty"`
	Total int `json:"total,omitempty"`
}

// Problems lists the problems of the objects, of the plan and of what the kernel refused, in this order.
func (s *State) Problems() []fault.Fault {
	var out []fault.Fault
	if s.Snapshot != nil {
		out = append(out, s.Snapshot.Problems...)
	}
	out = append(out, s.PlanProblems...)
	for _, q := range s.Quarantined {
		out = append(out, q.Fault())
	}
	return out
}

// Synced says that the first sync has succeeded.
func (s *State) Synced() bool { return s.InForce != nil }

// StageState is what is known of one stage.
type StageState struct {
	Name string `json:"name"`
	// LastSync is when it was last in sync. Duration, Full and Size (ServicePorts written)
	// describe the last Apply that changed anything.
	LastSync time.Time     `json:"lastSync,omitzero"`
	Duration time.Duration `json:"durationNanoseconds,omitempty"`
	Full     bool          `json:"full,omitempty"`
	Size     int           `json:"servicePorts,omitempty"`
	// FullSyncs and PartialSyncs count the Applies that succeeded.
	FullSyncs    uint64 `json:"fullSyncs"`
	PartialSyncs uint64 `json:"partialSyncs"`
	// Err is the error since Since, after Attempts attempts, or "" if there is none. LastErr is the time when the last
	// attempt failed, and is kept.
	Err      string    `json:"error,omitempty"`
	Since    time.Time `json:"failingSince,omitzero"`
	Attempts int       `json:"attempts,omitempty"`
	LastErr  time.Time `json:"lastError,omitzero"`
	// Running is since when an Apply runs; zero: none.
	Running     time.Time `json:"running,omitzero"`
	RunningFull bool      `json:"runningFull,omitempty"`
	// Drift counts repairs after another program changed the kernel's state.
	Drift       uint64    `json:"driftRepairs"`
	DriftReason string    `json:"driftReason,omitempty"`
	LastDrift   time.Time `json:"lastDrift,omitzero"`
}

func (s *StageState) failed(now time.Time, err error) {
	if s.Err == "" {
		s.Since = now
	}
	s.Err, s.LastErr = err.Error(), now
	s.Attempts++
}

func (s *StageState) recovered() { s.Err, s.Since, s.Attempts = "", time.Time{}, 0 }

func (s *StageState) applied(e Applied) {
	s.Duration, s.Full, s.Size = e.Duration, e.Full, e.Changed+e.Removed
	if e.Full {
		s.FullSyncs++
	} else {
		s.PartialSyncs++
	}
}

// Stages gives the backend and its followers.
func (s *State) Stages() []StageState { return append([]StageState{s.Backend}, s.Followers...) }

// State gives the current view.
func (p *Pipeline) State() State {
	s := *p.state.Load()
	if !s.Backend.Running.IsZero() {
		s.Done, s.Total = p.progress.get()
	}
	return s
}

// record gathers what State shows and no stage knows.
type record struct {
	snapshot     *tracker.Snapshot
	planProblems []fault.Fault
	outOfSync    time.Time
	queuedAt     time.Time
	triggers     []time.Time
}

// maxTriggers bounds the changes that are remembered while syncs fail.
const maxTriggers = 10_000

func (r *record) planned(snap *tracker.Snapshot, planProblems []fault.Fault, started time.Time) {
	if snap != r.snapshot {
		for _, t := range snap.Triggers {
			if t.After(started) && len(r.triggers) < maxTriggers {
				r.triggers = append(r.triggers, t)
			}
		}
	}
	r.snapshot, r.planProblems = snap, planProblems
}

// behind notes since when the kernel is out of sync.
func (r *record) behind(since time.Time) {
	if r.outOfSync.IsZero() {
		r.outOfSync = since
	}
}

func (r *record) synced() (triggers []time.Time) {
	r.outOfSync = time.Time{}
	triggers, r.triggers = r.triggers, nil
	return triggers
}

// publish makes what the loop knows visible to other goroutines.
func (p *Pipeline) publish() {
	r := &p.record
	s := &State{
		Snapshot: r.snapshot, Plan: p.plan, InForce: p.backend.lastGood,
		OutOfSync: r.outOfSync, Queued: r.queuedAt,
		Backend:     p.backend.status,
		Quarantined: sortQuarantined(p.quarantine.list()), PlanProblems: r.planProblems,
	}
	for _, f := range p.followers {
		s.Followers = append(s.Followers, f.status)
	}
	p.state.Store(s)
}
