package sdunit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/pipeline"
	"edgeway/test/sdtest"
)

type host struct {
	mu   sync.Mutex
	view View
	beat time.Time // beat is zero if the sync loop is idle
}

func (h *host) subject() Subject {
	return Subject{
		View: func() View {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.view
		},
		Heartbeat: func() time.Time {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.beat.IsZero() {
				return time.Now()
			}
			return h.beat
		},
	}
}

func (h *host) set(change func(*View)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.view)
}

func (h *host) block() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beat = time.Now()
}

func (h *host) unblock() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beat = time.Time{}
}

// withServices returns a function that sets a View to the state of a daemon with n Services.
func withServices(n int) func(*View) {
	return func(v *View) {
		*v = View{Status: fmt.Sprintf("nftables: %d Services", n), Programmed: true, ReloadDone: true}
	}
}

func newHost() *host {
	return &host{view: View{Status: "nftables: waiting for source kube"}}
}

func notified(t *testing.T, watchdog string, test func(t *testing.T, n *Notifier, h *host, m *serviceManager)) {
	t.Helper()
	m := sdtest.New(t)
	t.Setenv("WATCHDOG_USEC", watchdog)
	synctest.Test(t, func(t *testing.T) {
		logger, _ := newLog()
		n, h := NewNotifier(NewManager(logger), logger), newHost()
		run(t, n, h)
		test(t, n, h, m)
	})
}

func run(t *testing.T, n *Notifier, h *host) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		n.Run(ctx, h.subject())
		close(done)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// advance advances the fake clock and returns the datagrams that the Notifier has sent. advance reads often, because a
// socket's queue holds only a few datagrams.
func advance(m *serviceManager, d time.Duration) []datagram {
	var out []datagram
	for end := time.Now().Add(d); time.Now().Before(end); {
		synctest.Wait()
		time.Sleep(min(time.Until(end), time.Second))
		synctest.Wait()
		out = append(out, m.Receive()...)
	}
	return out
}

func count(sent []datagram, line string) int {
	n := 0
	for _, d := range sent {
		if d.Has(line) {
			n++
		}
	}
	return n
}

func statuses(sent []datagram) []string {
	var out []string
	for _, d := range sent {
		if text := d.Value("STATUS"); text != "" {
			out = append(out, text)
		}
	}
	return out
}

func TestReadyAfterFirstSync(t *testing.T) {
	notified(t, "", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		sent := advance(m, time.Hour)
		if count(sent, "READY=1") != 0 {
			t.Error("ready, and nothing is programmed")
		}
		if texts := statuses(sent); len(texts) != 1 || !strings.Contains(texts[0], "waiting for source kube") {
			t.Errorf("STATUS does not say what the start waits for: %q", texts)
		}
		if n := count(sent, "EXTEND_TIMEOUT_USEC=30000000"); n < 120 {
			t.Errorf("%d requests for more time in an hour of waiting; systemd would end the start", n)
		}

		h.set(withServices(2))
		sent = advance(m, time.Second)
		if len(sent) != 1 || !sent[0].Has("READY=1") || sent[0].Value("STATUS") != "nftables: 2 Services" {
			t.Fatalf("the first sync was told as %+v", sent)
		}
		if n := count(advance(m, time.Hour), "EXTEND_TIMEOUT_USEC=30000000"); n != 0 {
			t.Errorf("%d requests for more time after the start", n)
		}
	})
}

// The Notifier sends each new text, but at most one per statusPeriod.
func TestStatusIsSentOnChange(t *testing.T) {
	notified(t, "", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		advance(m, time.Second) // the Notifier may send a text before the daemon has Services
		h.set(withServices(1))
		if texts := statuses(advance(m, time.Hour)); len(texts) != 1 {
			t.Errorf("%d texts in an hour in which nothing happened", len(texts))
		}
		h.set(withServices(2))
		if texts := statuses(
			advance(m, statusPeriod+steadyPeriod),
		); len(texts) != 1 || texts[0] != "nftables: 2 Services" {
			t.Errorf("texts after a change: %q", texts)
		}
		sent := 0
		for i := range 600 {
			h.set(withServices(i % 20))
			sent += len(statuses(advance(m, 100*time.Millisecond)))
		}
		if sent < 10 || sent > 13 {
			t.Errorf("%d texts in a minute of constant change", sent)
		}
	})
}

func TestBlockedStartIsNotExtended(t *testing.T) {
	notified(t, "", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		h.block()
		advance(m, extraTime)
		if sent := advance(m, time.Hour); count(sent, "EXTEND_TIMEOUT_USEC=30000000") != 0 {
			t.Error("a start that hangs asks for more time")
		}
	})
}

func TestWatchdogFollowsSyncLoop(t *testing.T) {
	const timeout = 20 * time.Second
	notified(t, "20000000", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		h.set(withServices(1))
		for range 100 { // the sync loop is idle
			if count(advance(m, timeout/2), "WATCHDOG=1") == 0 {
				t.Fatal("no ping in half of the time")
			}
		}
		h.block()
		advance(m, timeout/2)
		if n := count(advance(m, 10*timeout), "WATCHDOG=1"); n != 0 {
			t.Errorf("%d pings while a stage is blocked", n)
		}
		h.unblock()
		if count(advance(m, timeout/4), "WATCHDOG=1") == 0 {
			t.Error("no ping after the stage has ended")
		}
	})
}

func TestShortWatchdogInterval(t *testing.T) {
	notified(t, "100000", func(t *testing.T, _ *Notifier, _ *host, m *serviceManager) {
		for range 100 {
			if count(advance(m, 50*time.Millisecond), "WATCHDOG=1") == 0 {
				t.Fatal("no ping in half of the time")
			}
		}
	})
}

// A sync may take longer than the watchdog interval. If a sync exceeds its own time limit (here one minute), the
// watchdog pings stop.
func TestBlockedStageStopsWatchdog(t *testing.T) {
	m := sdtest.New(t)
	t.Setenv("WATCHDOG_USEC", "60000000")
	synctest.Test(t, func(t *testing.T) {
		logger, log := newLog()
		stage := &blockingBackend{release: make(chan struct{})}
		objects := &lateSource{changed: make(chan struct{}, 1)}
		p := newPipeline(logger, objects)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = p.Run(ctx, pipeline.Stage{Name: "backend", Applier: stage}) }()
		n := NewNotifier(NewManager(logger), logger)
		go n.Run(ctx, Subject{Heartbeat: p.Heartbeat, View: func() View {
			s := p.State()
			return View{Status: "backend", Programmed: s.Synced()}
		}})

		if sent := advance(m, time.Minute); count(sent, "WATCHDOG=1") == 0 || count(sent, "READY=1") != 0 {
			t.Errorf("before the start of the sync: %+v", sent)
		}
		objects.serve()
		for range 2 {
			if n := count(advance(m, 30*time.Second), "WATCHDOG=1"); n == 0 {
				t.Error("no ping for half of the watchdog's time, in a sync that is within its own")
			}
		}
		advance(m, 30*time.Second)
		if n := count(advance(m, 10*time.Minute), "WATCHDOG=1"); n != 0 {
			t.Errorf("%d pings while the stage is blocked", n)
		}
		if strings.Count(log.String(), "watchdog not notified") != 1 {
			t.Errorf("the log does not say once why:\n%s", log)
		}
		close(stage.release)
		if sent := advance(m, time.Minute); count(sent, "WATCHDOG=1") == 0 || count(sent, "READY=1") != 1 {
			t.Errorf("after the sync: %+v", sent)
		}
		cancel()
	})
}

func TestReloadNotifications(t *testing.T) {
	m := sdtest.New(t)
	t.Setenv("WATCHDOG_USEC", "")
	synctest.Test(t, func(t *testing.T) {
		logger, _ := newLog()
		n, h := NewNotifier(NewManager(logger), logger), newHost()
		stop := run(t, n, h)
		n.NotifyReloading()
		if sent := advance(m, time.Minute); count(sent, "RELOADING=1") != 0 {
			t.Error("a daemon that starts cannot be reloading")
		}
		h.set(withServices(1))
		advance(m, time.Minute)

		n.NotifyReloading()
		sent := m.Receive()
		if len(sent) != 1 || !slices.Equal(names(sent[0]), []string{"RELOADING", "MONOTONIC_USEC"}) ||
			sent[0].Value("MONOTONIC_USEC") == "" {
			t.Fatalf("a reload began with %+v", sent)
		}
		if count(advance(m, time.Minute), "READY=1") != 0 {
			t.Error("ready, and the configuration is still being read")
		}
		n.NotifyReloadFailed()
		if sent := m.Receive(); len(sent) != 1 || !sent[0].Has("READY=1") {
			t.Errorf("a refused configuration: %+v", sent)
		}

		n.NotifyReloading()
		stop()
		m.Receive()
		next := newHost() // the new pipeline has not synced yet, and the old plan is in force
		next.set(withServices(1))
		next.set(func(v *View) { v.ReloadDone = false })
		stop = run(t, n, next)
		if count(advance(m, time.Second), "READY=1") != 0 {
			t.Error("ready, and the new configuration is not in force")
		}
		next.set(withServices(1))
		if sent := advance(m, time.Second); count(sent, "READY=1") != 1 {
			t.Errorf("the new configuration is in force: %+v", sent)
		}
		stop()

		n.NotifyReloading()
		run(t, n, newHost()) // the new host waits for an unreachable API server
		if count(advance(m, maxReloadWait+time.Second), "READY=1") != 1 {
			t.Error("a reload that waits does not end")
		}
	})
}

func names(d datagram) []string {
	var out []string
	for _, line := range d.Lines {
		name, _, _ := strings.Cut(line, "=")
		out = append(out, name)
	}
	return out
}

func TestNoNotificationAfterStopping(t *testing.T) {
	notified(t, "1000000", func(t *testing.T, n *Notifier, h *host, m *serviceManager) {
		h.set(withServices(1))
		advance(m, time.Minute)
		n.NotifyStopping()
		n.NotifyStopping()
		n.NotifyReloading()
		n.NotifyReloadFailed()
		if sent := advance(m, time.Minute); len(sent) != 1 || !sent[0].Has("STOPPING=1") {
			t.Errorf("the end was told as %+v", sent)
		}
	})
}
