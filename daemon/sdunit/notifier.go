package sdunit

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"edgeway/daemon/text"
	"edgeway/proxiers/messageid"
)

const (
	// startPeriod and steadyPeriod are the intervals between reads of the daemon's state. The Notifier uses startPeriod
	// until the daemon is ready.
	startPeriod  = 100 * time.Millisecond
	steadyPeriod = time.Second
	// statusPeriod is the minimum time between two status lines. Each status line wakes up systemd and all of its
	// clients.
	statusPeriod = 5 * time.Second
	// While the daemon is starting and its sync loop is alive, the Notifier requests extraTime from systemd once per
	// extendPeriod.
	extendPeriod = 10 * time.Second
	extraTime    = 30 * time.Second
	// maxReloadWait is the maximum time that a reload waits for the new configuration's sources, such as an unreachable
	// API server. After maxReloadWait, the Notifier reports the reload as done. While the reload waits, the previous
	// Services keep working.
	maxReloadWait = 10 * time.Second
)

// View is the daemon's state at a point in time.
type View struct {
	// Status is the text of STATUS=. The Notifier sends each new text, but at most one per statusPeriod.
	Status string
	// Programmed reports whether the backend has programmed the kernel and every follower has run at least once,
	// successfully or not.
	Programmed bool
	// ReloadDone reports whether the new configuration is in force or has failed.
	ReloadDone bool
}

// Subject is the part of the daemon that a reload replaces. A Notifier reports the Subject's state to systemd.
type Subject struct {
	View func() View
	// Heartbeat returns the time of the sync loop's latest heartbeat.
	Heartbeat func() time.Time
}

// Notifier reports the daemon's state to systemd. Any goroutine may call the methods of Notifier.
type Notifier struct {
	manager *Manager
	logger  *slog.Logger
	// watchdog is the time after which systemd kills a daemon that sends no pings, or 0 if the watchdog is off.
	watchdog time.Duration

	mu        sync.Mutex
	ready     bool // READY=1 was sent
	reloading bool // RELOADING=1 was sent, and READY=1 has not been sent since
	stopping  bool
	stalled   bool      // the Notifier has logged the stalled sync
	status    string    // status is the last text of STATUS=
	statusAt  time.Time // statusAt is zero if the next text must be sent immediately
	pinged    time.Time
	extended  time.Time
}

// NewNotifier returns a Notifier that reads the watchdog interval from the environment.
func NewNotifier(manager *Manager, logger *slog.Logger) *Notifier {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		logger.Warn("watchdog not notified", "error", err)
	}
	return &Notifier{manager: manager, logger: logger, watchdog: interval}
}

// Run reports the state of s to systemd until ctx is done.
func (n *Notifier) Run(ctx context.Context, s Subject) {
	if !n.manager.isPresent() {
		return
	}
	n.mu.Lock()
	reload := reload{under: n.reloading, since: time.Now()}
	n.mu.Unlock()
	for ctx.Err() == nil {
		pause := n.sendDue(s, &reload)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

type reload struct {
	under bool
	since time.Time
}

// sendDue sends all due notifications in one datagram, and returns the delay before the next call.
func (n *Notifier) sendDue(s Subject, r *reload) time.Duration {
	view, beat := s.View(), s.Heartbeat()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return steadyPeriod
	}
	var lines []string
	becomesReady := !n.ready && view.Programmed || r.under && (view.ReloadDone || time.Since(r.since) > maxReloadWait)
	if becomesReady {
		n.status, n.statusAt = "", time.Time{}
		lines = append(lines, sd.SdNotifyReady)
	}
	if status := oneLine(view.Status); status != n.status && time.Since(n.statusAt) >= statusPeriod {
		n.status, n.statusAt = status, time.Now()
		lines = append(lines, "STATUS="+status)
	}
	if n.isAlive(beat) {
		lines = append(lines, n.liveNotifications()...)
	}
	if len(lines) > 0 && !n.manager.send(lines...) {
		n.status, n.statusAt = "", time.Time{}
		return steadyPeriod // the next call sends the datagram again
	}
	if becomesReady {
		n.ready, n.reloading, r.under = true, false, false
	}
	return n.pause(r)
}

// oneLine returns s as one line without control characters, so that an error's text can neither add assignments to the
// datagram nor control systemctl's terminal.
func oneLine(s string) string { return strings.Join(strings.Fields(text.CleanLine(s)), " ") }

// pause returns a delay that allows several pings within half of the watchdog interval.
func (n *Notifier) pause(r *reload) time.Duration {
	pause := steadyPeriod
	if !n.ready || r.under {
		pause = startPeriod
	}
	if n.watchdog > 0 {
		pause = max(time.Millisecond, min(pause, n.watchdog/8))
	}
	return pause
}

// isAlive reports whether the sync loop is alive. An idle loop counts as alive. A stage may run for half of the
// watchdog interval without a heartbeat.
func (n *Notifier) isAlive(beat time.Time) bool {
	limit := n.watchdog / 2
	if limit == 0 {
		limit = extraTime
	}
	alive := time.Since(beat) < limit
	if !alive && !n.stalled && n.watchdog > 0 {
		n.logger.Error("sync is stuck, watchdog not notified",
			"message_id", messageid.SyncStuck, "silent_since", beat, "watchdog", n.watchdog)
	}
	n.stalled = !alive
	return alive
}

// liveNotifications returns the notifications for a live daemon: a watchdog ping and, during the start, a request for
// more time. A start takes a long time if the API server does not respond or if the first sync is large.
func (n *Notifier) liveNotifications() []string {
	var lines []string
	now := time.Now()
	if n.watchdog > 0 && now.Sub(n.pinged) >= n.watchdog/6 {
		n.pinged = now
		lines = append(lines, sd.SdNotifyWatchdog)
	}
	if !n.ready && now.Sub(n.extended) >= extendPeriod {
		n.extended = now
		lines = append(lines, extension(extraTime))
	}
	return lines
}

// NotifyReloading notifies systemd that the daemon is reloading its configuration. systemd then expects READY=1 from
// NotifyReloadFailed, or from Run with the new configuration. Before the first READY=1, NotifyReloading has no effect.
func (n *Notifier) NotifyReloading() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ready && !n.stopping {
		n.reloading = true
		// With Type=notify-reload, systemd 253 expects RELOADING=1 and MONOTONIC_USEC= in one datagram.
		n.manager.send(sd.SdNotifyReloading, strings.TrimSuffix(sd.SdNotifyMonotonicUsec(), "\n"))
	}
}

// NotifyReloadFailed notifies systemd that the previous configuration stays in force.
func (n *Notifier) NotifyReloadFailed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reloading && !n.stopping {
		n.reloading = false
		n.manager.send(sd.SdNotifyReady)
	}
}

// NotifyStopping notifies systemd that the daemon is stopping. After NotifyStopping, the Notifier sends no further
// notifications.
func (n *Notifier) NotifyStopping() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return
	}
	n.stopping = true
	n.manager.send(sd.SdNotifyStopping, "STATUS=Stopping; the rules stay in the kernel and Services keep working")
}
