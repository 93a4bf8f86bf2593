package endpointcheck

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A check closes its connection with a reset, so neither this host nor the endpoint keeps a socket in a closing
// state.
func TestCheckResetsConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	if err := connector(0)(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the endpoint's connection ends with %v, want a reset", err)
	}
}

func TestCheckFaultText(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	silent := func(ctx context.Context, _ netip.AddrPort) error {
		<-ctx.Done()
		return &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	}
	for want, dial := range map[string]dialFunc{"connection refused": connector(0), "no answer within 50ms": silent} {
		c := &Checker{settings: Settings{Interval: 100 * time.Millisecond}, dial: dial}
		if r := c.check(t.Context(), nobody); r.fault != want || r.unclear {
			t.Errorf("%+v, want %q", r, want)
		}
	}
}
