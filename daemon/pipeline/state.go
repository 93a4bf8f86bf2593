package pipeline

import (
	"time"

	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// State is the pipeline's state at one point in time. All values that a State points to are immutable.
type State struct {
	// Snapshot and Plan are the newest snapshot and plan, or nil until the tracker provides a snapshot.
	Snapshot *tracker.Snapshot `json:"-"`
	Plan     *plan.Plan        `json:"-"`
	// AppliedPlan is the plan that the backend last applied successfully, or nil if the backend has applied no plan.
	AppliedPlan *plan.Plan `json:"-"`
	// OutOfSyncSince is the time when the kernel got out of sync, or zero if it is in sync.
	OutOfSyncSince time.Time `json:"outOfSync,omitzero"`
	// QueuedAt is the time when the pipeline last received a change.
	QueuedAt time.Time `json:"queued,omitzero"`
	// Backend and Followers describe the stages in the order in which they run.
	Backend     StageState           `json:"backend"`
	Followers   []StageState         `json:"followers,omitempty"`
	Quarantined []QuarantinedVersion `json:"quarantined,omitempty"`
	// PlanProblems lists the problems that the planner found. Snapshot.Problems lists the problems with the objects.
	PlanProblems []fault.Fault `json:"-"`
	// Done counts the ServicePorts that the running Apply has programmed, and Total counts all of its ServicePorts, if
	// the Apply reports progress.
	Done  int `json:"done,omitempty"`
	Total int `json:"total,omitempty"`
}

// Problems returns the object problems, followed by the plan problems and the problems of quarantined ServicePorts.
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

// Synced reports whether the first sync has succeeded.
func (s *State) Synced() bool { return s.AppliedPlan != nil }

// StageState describes one stage.
type StageState struct {
	Name string `json:"name"`
	// LastSync is the time when the stage was last in sync. Duration, Full and Size (the number of written
	// ServicePorts) describe the last Apply that changed the kernel's state.
	LastSync time.Time     `json:"lastSync,omitzero"`
	Duration time.Duration `json:"durationNanoseconds,omitempty"`
	Full     bool          `json:"full,omitempty"`
	Size     int           `json:"servicePorts,omitempty"`
	// FullSyncs and PartialSyncs count the successful Applies.
	FullSyncs    uint64 `json:"fullSyncs"`
	PartialSyncs uint64 `json:"partialSyncs"`
	// Err is the current error, or "" if there is no error. Since is the time when the error first occurred, and
	// Attempts counts the failed attempts. LastErr is the time of the last failed attempt. A success does not reset
	// LastErr.
	Err      string    `json:"error,omitempty"`
	Since    time.Time `json:"failingSince,omitzero"`
	Attempts int       `json:"attempts,omitempty"`
	LastErr  time.Time `json:"lastError,omitzero"`
	// RunningSince is the start time of the running Apply, or zero if no Apply is running.
	RunningSince time.Time `json:"running,omitzero"`
	RunningFull  bool      `json:"runningFull,omitempty"`
	// DriftRepairs counts the repairs after other programs changed the kernel's state.
	DriftRepairs uint64    `json:"driftRepairs"`
	DriftReason  string    `json:"driftReason,omitempty"`
	LastDrift    time.Time `json:"lastDrift,omitzero"`
}

func (s *StageState) failed(now time.Time, err error) {
	if s.Err == "" {
		s.Since = now
	}
	s.Err, s.LastErr = err.Error(), now
	s.Attempts++
}

func (s *StageState) recovered() { s.Err, s.Since, s.Attempts = "", time.Time{}, 0 }

func (s *StageState) applied(e ApplyResult) {
	s.Duration, s.Full, s.Size = e.Duration, e.Full, e.ChangedCount+e.RemovedCount
	if e.Full {
		s.FullSyncs++
	} else {
		s.PartialSyncs++
	}
}

// Stages returns the backend and its followers.
func (s *State) Stages() []StageState { return append([]StageState{s.Backend}, s.Followers...) }

// State returns the pipeline's current state.
func (p *Pipeline) State() State {
	s := *p.state.Load()
	if !s.Backend.RunningSince.IsZero() {
		s.Done, s.Total = p.progress.get()
	}
	return s
}

type record struct {
	snapshot     *tracker.Snapshot
	planProblems []fault.Fault
	outOfSync    time.Time
	queuedAt     time.Time
	triggers     []time.Time
}

// maxTriggers is the maximum number of trigger times that the pipeline stores while syncs fail.
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

// publish stores the loop's state for other goroutines.
func (p *Pipeline) publish() {
	r := &p.record
	s := &State{
		Snapshot: r.snapshot, Plan: p.plan, AppliedPlan: p.backend.lastGoodPlan,
		OutOfSyncSince: r.outOfSync, QueuedAt: r.queuedAt,
		Backend:     p.backend.status,
		Quarantined: sortQuarantined(p.quarantine.list()), PlanProblems: r.planProblems,
	}
	for _, f := range p.followers {
		s.Followers = append(s.Followers, f.status)
	}
	p.state.Store(s)
}
