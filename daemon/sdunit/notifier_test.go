package sdunit

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/sdunit/sdtest"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
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

// synced returns a change that makes a plan with n Services the plan in force.
func synced(n int) func(*View) {
	p := &plan.Plan{}
	for i := range n {
		p.Services = append(p.Services, &plan.ServicePort{Name: plan.ServicePortName{Namespace: "default", Name: string(rune('a' + i))}})
	}
	return func(v *View) {
		v.State.InForce = p
		v.State.Backend.LastSync = time.Now()
		v.Health.Faults = nil
	}
}

func newHost() *host {
	return &host{view: View{Backend: "nftables", Health: health.Report{Faults: []fault.Fault{
		{Message: "Nothing is programmed yet: waiting for source kube (connect to api:6443: connection refused)"},
	}}}}
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

// during advances the fake clock and returns the datagrams that the Notifier has sent. during reads often, because
// the queue of a socket holds only a few datagrams.
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
		if texts := statuses(sent); len(texts) != 1 || !strings.Contains(texts[0], "waiting for source kube (connect to api:6443") {
			t.Errorf("STATUS does not say what the start waits for: %q", texts)
		}
		if n := count(sent, "EXTEND_TIMEOUT_USEC=30000000"); n < 120 {
			t.Errorf("%d requests for more time in an hour of waiting; systemd would end the start", n)
		}

		h.set(synced(2))
		sent = during(m, time.Second)
		if len(sent) != 1 || !sent[0].Has("READY=1") || sent[0].Value("STATUS") != "nftables: 2 Services, 0 endpoints, synced 0 s ago" {
			t.Fatalf("the first sync was told as %+v", sent)
		}
		if n := count(during(m, time.Hour), "EXTEND_TIMEOUT_USEC=30000000"); n != 0 {
			t.Errorf("%d requests for more time after the start", n)
		}
	})
}

// READY=1 must wait for the followers, because a NodePort on loopback would otherwise refuse clients immediately after
// the start.
func TestReadyWaitsForFollowers(t *testing.T) {
	notified(t, "", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		turn := func(loopback pipeline.StageState) func(*View) {
			return func(v *View) {
				synced(2)(v)
				v.State.Followers = []pipeline.StageState{{Name: "conntrack", LastSync: time.Now()}, loopback}
			}
		}
		h.set(turn(pipeline.StageState{Name: "localnodeport"}))
		if count(during(m, time.Minute), "READY=1") != 0 {
			t.Error("ready before anybody listens on loopback")
		}
		h.set(turn(pipeline.StageState{Name: "localnodeport", Err: "no descriptors"}))
		if count(during(m, time.Second), "READY=1") != 1 {
			t.Error("not ready, although a follower that fails must hold up nobody")
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
		h.set(func(v *View) {
			v.Sources = []health.Source{away{since: time.Now()}}
			v.State.Backend.Err = "nft: no such file" // the sync fails, but does not hang
			v.State.OutOfSync = time.Now()
		})
		for range 100 { // the sync loop is idle, and the API server is unreachable
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
		go n.Run(ctx, Subject{Heartbeat: p.Heartbeat, View: func() View { return View{Backend: "backend", State: p.State()} }})

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
		next.set(func(v *View) { v.State.Backend.LastSync = time.Time{} })
		stop = run(t, n, next)
		if count(during(m, time.Second), "READY=1") != 0 {
			t.Error("ready, and the new configuration is not in force")
		}
		next.set(synced(1))
		next.set(func(v *View) { v.Switching = true })
		if count(during(m, time.Second), "READY=1") != 0 {
			t.Error("ready, and the rules of the backend before are still there")
		}
		next.set(func(v *View) { v.Switching = false })
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
