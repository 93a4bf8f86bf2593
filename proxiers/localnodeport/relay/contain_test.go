package relay

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/proxiers/contain"
)

// panicky is a pool whose first Pick panics.
type panicky struct {
	pool
	panicked atomic.Bool
}

func (p *panicky) Pick(client netip.AddrPort, tried []netip.AddrPort) (netip.AddrPort, bool) {
	if !p.panicked.Swap(true) {
		panic("on purpose")
	}
	return p.pool.Pick(client, tried)
}

// A loop that panics runs again, with the same ports.
func TestALoopPanics(t *testing.T) {
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
	r, err := New(Options{Loops: 1, Contain: func(_ string, run func()) {
		for contain.Call(func() error { run(); return nil }) != nil {
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		// The connection of the panic counts as open.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Shutdown(ctx)
	}()
	target := &panicky{pool: pool{endpoints: []netip.AddrPort{addrOf(far)}}}
	if _, err := r.Serve(l, target); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for deadline := time.Now().Add(30 * time.Second); !target.panicked.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no endpoint was picked")
		}
	}
	next, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	_ = next.SetDeadline(time.Now().Add(30 * time.Second))
	if got, err := io.ReadAll(next); string(got) != "hello" || err != nil {
		t.Errorf("the next client gets %q: %v", got, err)
	}
}
