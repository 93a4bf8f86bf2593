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
	closed := netip.MustParseAddrPort("127.0.97.1:9") // no program listens on port 9, and the kernel does not pick it
	silent := func(ctx context.Context, _ netip.AddrPort) error {
		<-ctx.Done()
		return &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	}
	for _, tt := range []struct {
		want     string
		dial     dialFunc
		interval time.Duration
	}{
		{"connection refused", connector(0), time.Minute}, // a busy host may take long to report the refusal
		{"no answer within 50ms", silent, 100 * time.Millisecond},
	} {
		c := &Checker{settings: Settings{Interval: tt.interval}, dial: tt.dial}
		if r := c.check(t.Context(), closed); r.fault != tt.want || r.unclear {
			t.Errorf("%+v, want %q", r, tt.want)
		}
	}
}
