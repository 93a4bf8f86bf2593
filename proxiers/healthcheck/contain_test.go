package healthcheck

import (
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"edgeway/proxiers/contain"
	"edgeway/proxiers/plan"
)

type panicky struct {
	net.Listener
	panicked atomic.Bool
}

func (p *panicky) Accept() (net.Conn, error) {
	if !p.panicked.Swap(true) {
		panic("on purpose")
	}
	return p.Listener.Accept()
}

func TestServerRestartsAfterPanic(t *testing.T) {
	l := newLab(t)
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	again := make(chan error, 1)
	l.follower.opts.Contain = func(_ string, run func()) {
		err := contain.Call(func() error {
			run()
			return nil
		})
		if err != nil {
			logger.Info("part panicked", "error", err)
			run()
			again <- err
		}
	}
	port, other := freePort(t), &plan.HealthCheck{Namespace: "default", Name: "other", Port: freePort(t), LocalReady: 1}
	l.must(l.apply([]string{one}, other))
	listener, err := net.Listen("tcp", hostPort(one, port))
	l.must(err)
	addr := netip.MustParseAddrPort(listener.Addr().String())
	l.follower.servers[addr] = l.follower.serve(&panicky{Listener: listener},
		&plan.HealthCheck{Namespace: "default", Name: "lb", Port: port, LocalReady: 1})
	for _, p := range []uint16{port, other.Port} {
		if code, _, body := get(one, p); code != 200 {
			t.Errorf("port %d answers %d: %s", p, code, body)
		}
	}
	l.must(l.follower.Close())
	if err := <-again; !contain.IsPanic(err) {
		t.Error(err)
	}
}

func TestPanicEndsOneConnection(t *testing.T) {
	l := newLab(t)
	var panicked atomic.Bool
	l.follower.opts.Healthy = func() bool {
		if !panicked.Swap(true) {
			panic("on purpose")
		}
		return true
	}
	port := freePort(t)
	l.must(l.apply([]string{one}, &plan.HealthCheck{Namespace: "default", Name: "lb", Port: port, LocalReady: 1}))
	if code, _, _ := get(one, port); code != 0 {
		t.Errorf("the first request is answered with %d", code)
	}
	if code, _, body := get(one, port); code != 200 {
		t.Errorf("the next request is answered with %d: %s", code, body)
	}
}
