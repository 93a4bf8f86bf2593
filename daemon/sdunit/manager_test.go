package sdunit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/test/sdtest"
)

func TestSlowServiceManagerDoesNotBlock(t *testing.T) {
	m := sdtest.New(t)
	logger, log := newLog()
	n, h := NewNotifier(NewManager(logger), logger), newHost()
	for range 600 { // the queue holds fewer datagrams (net.unix.max_dgram_qlen, 10 or 512)
		if log.String() != "" {
			break
		}
		n.manager.send("WATCHDOG=1")
	}
	if !strings.Contains(log.String(), errDeaf.Error()) {
		t.Errorf("no warning: %s", log)
	}
	start := time.Now()
	h.set(withServices(1))
	run(t, n, h)
	s := NewSockets(n.manager, nil, logger)
	for range 100 {
		addr := freeAddr(t, loopback)
		if _, err := s.Listen(addr); err != nil {
			t.Fatal(err)
		}
		s.Release(addr)
	}
	if d := time.Since(start); d > 10*sendTimeout { // if each message waited, they would take 200 times sendTimeout
		t.Errorf("200 messages took %v", d)
	}
	var sent []datagram
	for deadline := time.Now().Add(time.Minute); count(sent, "READY=1") == 0 &&
		time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		sent = m.Receive()
	}
	if count(sent, "READY=1") == 0 {
		t.Error("a manager that reads again is not told that the daemon is ready")
	}
	n.NotifyStopping() // NotifyStopping must not block
}

func TestInvalidNotifySocketWarnsOnce(t *testing.T) {
	addr := freeAddr(t, loopback)
	for _, path := range []string{"/run/systemd/not", "@", "relative", strings.Repeat("/long", 40)} {
		t.Setenv("NOTIFY_SOCKET", path)
		t.Setenv("WATCHDOG_USEC", "20000000")
		synctest.Test(t, func(t *testing.T) {
			logger, log := newLog()
			m := NewManager(logger)
			n, h := NewNotifier(m, logger), newHost()
			h.set(withServices(1))
			run(t, n, h)
			s := NewSockets(m, nil, logger)
			if _, err := s.Listen(addr); err != nil {
				t.Error(err)
			}
			s.Release(addr)
			time.Sleep(time.Hour)
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, path) {
				t.Errorf("%q: not one warning that names it:\n%s", path, text)
			}
		})
	}
}

func TestNotifierWithoutServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "nonsense")
	logger, log := newLog()
	n := NewNotifier(NewManager(logger), logger)
	n.Run(t.Context(), Subject{}) // Run must return immediately
	n.NotifyStopping()
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "watchdog") {
		t.Errorf("want a warning about the watchdog alone: %s", log)
	}
}

// Testing the host may take longer than TimeoutStartSec=.
func TestExtendStart(t *testing.T) {
	m := sdtest.New(t)
	logger, _ := newLog()
	NewManager(logger).ExtendStart(6 * time.Minute)
	if sent := m.Receive(); len(sent) != 1 || !sent[0].Has("EXTEND_TIMEOUT_USEC=390000000") {
		t.Errorf("sent %+v", sent)
	}
}
