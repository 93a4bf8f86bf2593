package relay

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers/contain"
)

type panickingTarget struct {
	pool
	panicked atomic.Bool
}

func (p *panickingTarget) Pick(client netip.AddrPort, tried []netip.AddrPort) (netip.AddrPort, bool) {
	if !p.panicked.Swap(true) {
		panic("on purpose")
	}
	return p.pool.Pick(client, tried)
}

func TestPanicEndsOneConnection(t *testing.T) {
	far, l := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	go func() {
		for {
			conn, err := far.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "hello")
			conn.Close()
		}
	}()
	panics := make(chan error, 2)
	r := New(Options{OnPanic: func(err error) { panics <- err }})
	defer func() { _ = r.Shutdown(done()) }()
	target := &panickingTarget{pool: pool{endpoints: []netip.AddrPort{addrOf(far)}}}
	serve(t, r, l, target)
	first, err := net.Dial("tcp", l.Addr().String())
	if err == nil {
		_ = first.SetDeadline(time.Now().Add(30 * time.Second))
		expectReset(t, first.(*net.TCPConn))
		first.Close()
	} else if !errors.Is(err, syscall.ECONNRESET) { // the reset may arrive before the dial returns
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); !target.panicked.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no endpoint was picked")
		}
	}
	if err := <-panics; !contain.IsPanic(err) {
		t.Errorf("reported %v, want the panic", err)
	}
	eventually(t, "the connection is gone", func() bool { return r.Stats().Active == 0 })
	next, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	_ = next.SetDeadline(time.Now().Add(30 * time.Second))
	if got, err := io.ReadAll(next); string(got) != "hello" || err != nil {
		t.Errorf("the next client gets %q: %v", got, err)
	}
	if len(panics) > 0 {
		t.Errorf("a second report: %v", <-panics)
	}
}
