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

// synced returns a change to a View that puts a plan with n Services in force.
func synced(n int) func(*View) {
	return func(v *View) { *v = View{Status: fmt.Sprintf("nftables: %d Services", n), Served: true, Settled: true} }
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

// during advances the fake clock and returns the datagrams that the Notifier has sent. The function reads often,
// because a socket's queue holds only a few datagrams.
func during(m *serviceManager, d time.Duration) []datagram {
	var out []datagram
	for end := time.Now().Add(d); time.Now().Before(end); {
		synctest.Wait()
		time.Sleep(min(time.Until(end), time.Second))
		synctest.Wait()
		out = append(out, m.Received()...)
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
		sent := during(m, time.Hour)
		if count(sent, "READY=1") != 0 {
			t.Error("ready, and nothing is programmed")
		}
		if texts := statuses(sent); len(texts) != 1 || !strings.Contains(texts[0], "waiting for source kube") {
			t.Errorf("STATUS does not say what the start waits for: %q", texts)
		}
		if n := count(sent, "EXTEND_TIMEOUT_USEC=30000000"); n < 120 {
			t.Errorf("%d requests for more time in an hour of waiting; systemd would end the start", n)
		}

		h.set(synced(2))
		sent = during(m, time.Second)
		if len(sent) != 1 || !sent[0].Has("READY=1") || sent[0].Value("STATUS") != "nftables: 2 Services" {
			t.Fatalf("the first sync was told as %+v", sent)
		}
		if n := count(during(m, time.Hour), "EXTEND_TIMEOUT_USEC=30000000"); n != 0 {
			t.Errorf("%d requests for more time after the start", n)
		}
	})
}

// The Notifier sends each new text, but at most one per statusPeriod.
func TestStatusIsSentOnChange(t *testing.T) {
	notified(t, "", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		h.set(synced(1))
		if texts := statuses(during(m, time.Hour)); len(texts) != 1 {
			t.Errorf("%d texts in an hour in which nothing happened", len(texts))
		}
		h.set(synced(2))
		if texts := statuses(during(m, statusEvery+steady)); len(texts) != 1 || texts[0] != "nftables: 2 Services" {
			t.Errorf("texts after a change: %q", texts)
		}
		sent := 0
		for i := range 600 {
			h.set(synced(i % 20))
			sent += len(statuses(during(m, 100*time.Millisecond)))
		}
		if sent < 10 || sent > 13 {
			t.Errorf("%d texts in a minute of constant change", sent)
		}
	})
}

func TestBlockedStartIsNotExtended(t *testing.T) {
	notified(t, "", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		h.block()
		during(m, extendBy)
		if sent := during(m, time.Hour); count(sent, "EXTEND_TIMEOUT_USEC=30000000") != 0 {
			t.Error("a start that hangs asks for more time")
		}
	})
}

func TestWatchdogFollowsSyncLoop(t *testing.T) {
	const timeout = 20 * time.Second
	notified(t, "20000000", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		h.set(synced(1))
		for range 100 { // the sync loop is idle
			if count(during(m, timeout/2), "WATCHDOG=1") == 0 {
				t.Fatal("no ping in half of the time")
			}
		}
		h.block()
		during(m, timeout/2)
		if n := count(during(m, 10*timeout), "WATCHDOG=1"); n != 0 {
			t.Errorf("%d pings while a stage is blocked", n)
		}
		h.unblock()
		if count(during(m, timeout/4), "WATCHDOG=1") == 0 {
			t.Error("no ping after the stage has ended")
		}
	})
}

func TestShortWatchdogInterval(t *testing.T) {
	notified(t, "100000", func(t *testing.T, _ *Notifier, _ *host, m *serviceManager) {
		for range 100 {
			if count(during(m, 50*time.Millisecond), "WATCHDOG=1") == 0 {
				t.Fatal("no ping in half of the time")
			}
		}
	})
}

// A sync may take longer than the watchdog interval. A sync that exceeds its own time limit (here one minute) stops
// the pings.
func TestBlockedStageStopsWatchdog(t *testing.T) {
	m := sdtest.New(t)
	t.Setenv("WATCHDOG_USEC", "60000000")
	synctest.Test(t, func(t *testing.T) {
		logger, log := newLog()
		stage := &blocking{release: make(chan struct{})}
		objects := &late{changed: make(chan struct{}, 1)}
		p := newPipeline(logger, objects)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = p.Run(ctx, pipeline.Stage{Name: "backend", Applier: stage}) }()
		n := NewNotifier(NewManager(logger), logger)
		go n.Run(ctx, Subject{Heartbeat: p.Heartbeat, View: func() View {
			s := p.State()
			return View{Status: "backend", Served: s.Synced()}
		}})

		if sent := during(m, time.Minute); count(sent, "WATCHDOG=1") == 0 || count(sent, "READY=1") != 0 {
			t.Errorf("before the start of the sync: %+v", sent)
		}
		objects.serve()
		for range 2 {
			if n := count(during(m, 30*time.Second), "WATCHDOG=1"); n == 0 {
				t.Error("no ping for half of the watchdog's time, in a sync that is within its own")
			}
		}
		during(m, 30*time.Second)
		if n := count(during(m, 10*time.Minute), "WATCHDOG=1"); n != 0 {
			t.Errorf("%d pings while the stage is blocked", n)
		}
		if strings.Count(log.String(), "watchdog not notified") != 1 {
			t.Errorf("the log does not say once why:\n%s", log)
		}
		close(stage.release)
		if sent := during(m, time.Minute); count(sent, "WATCHDOG=1") == 0 || count(sent, "READY=1") != 1 {
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
		n.Reloading()
		if sent := during(m, time.Minute); count(sent, "RELOADING=1") != 0 {
			t.Error("a daemon that starts cannot be reloading")
		}
		h.set(synced(1))
		during(m, time.Minute)

		n.Reloading()
		sent := m.Received()
		if len(sent) != 1 || !slices.Equal(names(sent[0]), []string{"RELOADING", "MONOTONIC_USEC"}) || sent[0].Value("MONOTONIC_USEC") == "" {
			t.Fatalf("a reload began with %+v", sent)
		}
		if count(during(m, time.Minute), "READY=1") != 0 {
			t.Error("ready, and the configuration is still being read")
		}
		n.NotReloaded()
		if sent := m.Received(); len(sent) != 1 || !sent[0].Has("READY=1") {
			t.Errorf("a refused configuration: %+v", sent)
		}

		n.Reloading()
		stop()
		m.Received()
		next := newHost() // the new pipeline has not synced yet, and the old plan is in force
		next.set(synced(1))
		next.set(func(v *View) { v.Settled = false })
		stop = run(t, n, next)
		if count(during(m, time.Second), "READY=1") != 0 {
			t.Error("ready, and the new configuration is not in force")
		}
		next.set(synced(1))
		if sent := during(m, time.Second); count(sent, "READY=1") != 1 {
			t.Errorf("the new configuration is in force: %+v", sent)
		}
		stop()

		n.Reloading()
		run(t, n, newHost()) // the new host waits for an unreachable API server
		if count(during(m, reloadPatience+time.Second), "READY=1") != 1 {
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
		h.set(synced(1))
		during(m, time.Minute)
		n.Stopping()
		n.Stopping()
		n.Reloading()
		n.NotReloaded()
		if sent := during(m, time.Minute); len(sent) != 1 || !sent[0].Has("STOPPING=1") {
			t.Errorf("the end was told as %+v", sent)
		}
	})
}
