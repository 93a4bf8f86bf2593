package pipeline

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// RequestFull asks for a full sync of all stages, as the kernel's state is no longer what was last
// applied. A request that comes while a sync runs is answered by another one after it.
func (p *Pipeline) RequestFull(reason string) {
	p.drift.request(reason)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// driftRequest keeps the oldest unanswered report of drift.
type driftRequest struct {
	mu     sync.Mutex
	reason string
	since  time.Time // zero: none
}

func (d *driftRequest) request(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		d.reason, d.since = reason, time.Now()
	}
}

func (d *driftRequest) pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero()
}

func (d *driftRequest) take() (reason string, since time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reason, since = d.reason, d.since
	d.reason, d.since = "", time.Time{}
	return reason, since, !since.IsZero()
}

// Heartbeat is when the sync loop was last seen alive: now while it waits for a trigger, else the
// last time that a stage started, ended or reported progress. A stage that blocks makes it age; no
// timer keeps it young.
func (p *Pipeline) Heartbeat() time.Time { return p.beat.last() }

// heartbeat keeps times with their monotonic reading: a host's clock may be set while a stage runs.
type heartbeat struct{ at atomic.Pointer[time.Time] } // nil: idle

func (h *heartbeat) idle() { h.at.Store(nil) }

func (h *heartbeat) busy() {
	now := time.Now()
	h.at.Store(&now)
}

func (h *heartbeat) last() time.Time {
	if at := h.at.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// Progress notes how far the Apply that is running has come. It is what proxiers.Options.Progress
// wants to be.
func (p *Pipeline) Progress(done, total int) {
	p.beat.busy()
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
