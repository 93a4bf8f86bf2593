package sdunit

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/sdunit/sdtest"
	"edgeway/proxiers/contain"
)

// A panic while the daemon's state is looked at delays the notifications. Then the service manager hears that the daemon
// is ready.
func TestTheNotifierPanics(t *testing.T) {
	m := sdtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		logger, _ := newLog()
		n, h := NewNotifier(NewManager(logger), logger), newHost()
		h.set(synced(1))
		parts, subject, looks := contain.New(logger), h.subject(), 0
		view := subject.View
		subject.View = func() View {
			if looks++; looks == 1 {
				panic("on purpose")
			}
			return view()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- parts.Run(ctx, "service manager", func(ctx context.Context) error {
				n.Run(ctx, subject)
				return nil
			})
		}()
		if got := count(during(m, contain.Pause/2), "READY=1"); got != 0 {
			t.Errorf("ready %d times during the pause", got)
		}
		if got := count(during(m, contain.Pause), "READY=1"); got != 1 {
			t.Errorf("ready %d times after the pause, want once", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A datagram whose sender panics counts as not sent, and the next one is sent.
func TestASenderPanics(t *testing.T) {
	notified(t, "", func(t *testing.T, n *Notifier, _ *host, m *serviceManager) {
		if n.manager.deliver(func() error { panic("on purpose") }) {
			t.Error("the datagram counts as sent")
		}
		if !n.manager.send("STATUS=next") || count(during(m, time.Second), "STATUS=next") != 1 {
			t.Error("the next datagram is not sent")
		}
	})
}

// The end of a refusal whose goroutine panicked is not waited for for ever. A socket that is not of TCP makes it panic.
func TestARefusalPanics(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := startRefusal(file)
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-r.done // without end: the panic closes it
	r.end()
}
