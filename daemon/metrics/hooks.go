package metrics

import (
	"strconv"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// RecordApply implements the hook pipeline.Options.OnApplied.
func (m *Metrics) RecordApply(a pipeline.ApplyResult) {
	kind := "partial"
	if a.Full {
		kind = "full"
	}
	seconds := a.Duration.Seconds()
	m.stageDuration.WithLabelValues(a.Stage, kind).Observe(seconds)
	if a.Err != nil {
		m.stageErrors.WithLabelValues(a.Stage).Inc()
	}
	if a.Stage != m.opts.Backend {
		return
	}
	byKind := m.partialDuration
	if a.Full {
		byKind = m.fullDuration
	}
	for _, f := range m.families {
		m.duration.WithLabelValues(f).Observe(seconds)
		byKind.WithLabelValues(f).Observe(seconds)
	}
}

// RecordSync implements the hook pipeline.Options.OnSynced.
func (m *Metrics) RecordSync(_ *tracker.Snapshot, _ *plan.Plan, s pipeline.SyncResult) {
	end := s.Start.Add(s.Duration)
	for _, t := range s.Triggers {
		for _, f := range m.families {
			m.programming.WithLabelValues(f).Observe(max(0, end.Sub(t).Seconds()))
		}
	}
}

// RecordHealthAnswer implements the hook health.HandlerOptions.OnAnswer.
func (m *Metrics) RecordHealthAnswer(path string, code int) {
	switch path {
	case "/healthz":
		m.healthz.WithLabelValues(strconv.Itoa(code)).Inc()
	case "/livez":
		m.livez.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}
