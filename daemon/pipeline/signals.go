package pipeline

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// RequestFull asks for a full sync of a stage, as its part of the kernel's state is no longer what was last
// applied. A request that arrives during a sync causes another one after it.
func (p *Pipeline) RequestFull(stage, reason string) {
	p.drift.request(stage, reason)
	p.Wake()
}

// Wake has the stages asked again when they have later work to do.
func (p *Pipeline) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// driftReport is the oldest unanswered one of a stage.
type driftReport struct {
	reason string
	since  time.Time
}

// driftReports are those that no sync has answered yet, by stage.
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

// Heartbeat is when the sync loop was last seen alive: now while it waits for a trigger, and while a stage, or the
// planner, is within the time that it may take; else when that time was over. What does not end in time makes it age;
// no timer refreshes it.
func (p *Pipeline) Heartbeat() time.Time { return p.beat.last() }

// heartbeat keeps times with their monotonic reading: a host's clock may be set while a stage runs.
type heartbeat struct{ until atomic.Pointer[time.Time] } // nil: idle

func (h *heartbeat) idle() { h.until.Store(nil) }

// working says that the loop plans, or does something else between two stages.
func (h *heartbeat) working() { h.busyUntil(time.Now().Add(ownTimeout)) }

// busyUntil says that the loop may be silent until then.
func (h *heartbeat) busyUntil(t time.Time) { h.until.Store(&t) }

func (h *heartbeat) last() time.Time {
	now := time.Now()
	if until := h.until.Load(); until != nil && until.Before(now) {
		return *until
	}
	return now
}

// Progress notes how far the Apply that is running has come. It is used as
// proxiers.Env.Progress.
func (p *Pipeline) Progress(done, total int) {
	p.progress.set(p.opts.Logger, done, total)
}

const progressLogEvery = 2 * time.Second

// progressMark holds the progress of the Apply that is running.
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
