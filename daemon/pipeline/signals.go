package pipeline

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// RequestFull requests a full sync of a stage whose last plan no longer matches the kernel. A request during a sync
// triggers another sync afterwards.
func (p *Pipeline) RequestFull(stage, reason string) {
	p.drift.request(stage, reason)
	p.Wake()
}

// Wake wakes the loop, which then rechecks the due times of the stages' deferred work.
func (p *Pipeline) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// driftReport is a stage's oldest pending drift report.
type driftReport struct {
	reason string
	since  time.Time
}

type driftReports struct {
	mu      sync.Mutex
	reports map[string]driftReport
}

func (d *driftReports) request(stage, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reports == nil {
		d.reports = map[string]driftReport{}
	}
	if _, known := d.reports[stage]; !known {
		d.reports[stage] = driftReport{reason, time.Now()}
	}
}

func (d *driftReports) pending(stage string) bool {
	_, ok := d.get(stage)
	return ok
}

func (d *driftReports) get(stage string) (driftReport, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.reports[stage]
	return r, ok
}

func (d *driftReports) take(stage string) (driftReport, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.reports[stage]
	delete(d.reports, stage)
	return r, ok
}

// Heartbeat returns the time when the sync loop last made progress. While the loop waits for a trigger, and while a
// stage or the planner is within its time limit, Heartbeat returns the current time. After the time limit has
// expired, Heartbeat returns the time when it expired. No timer refreshes the heartbeat, so it ages while the loop
// hangs.
func (p *Pipeline) Heartbeat() time.Time { return p.beat.last() }

// heartbeat stores times with a monotonic clock reading, because a program may set the host's clock while a stage
// runs.
type heartbeat struct{ until atomic.Pointer[time.Time] } // nil while idle

func (h *heartbeat) noteIdle() { h.until.Store(nil) }

// noteWork records that the loop is computing a plan or doing other work between two stages.
func (h *heartbeat) noteWork() { h.busyUntil(time.Now().Add(loopTimeout)) }

func (h *heartbeat) busyUntil(t time.Time) { h.until.Store(&t) }

func (h *heartbeat) last() time.Time {
	now := time.Now()
	if until := h.until.Load(); until != nil && until.Before(now) {
		return *until
	}
	return now
}

// Progress records the progress of the running Apply. Backends call Progress through proxiers.Env.
func (p *Pipeline) Progress(done, total int) {
	p.progress.set(p.opts.Logger, done, total)
}

const progressLogEvery = 2 * time.Second

type progressMark struct {
	mu          sync.Mutex
	done, total int
	logged      time.Time
}

func (m *progressMark) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done, m.total, m.logged = 0, 0, time.Now()
}

func (m *progressMark) set(log *slog.Logger, done, total int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done, m.total = done, total
	if time.Since(m.logged) >= progressLogEvery {
		m.logged = time.Now()
		log.Info("sync progress", "done", done, "total", total)
	}
}

func (m *progressMark) get() (done, total int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done, m.total
}
