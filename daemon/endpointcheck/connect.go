package endpointcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/ownmark"
)

// dialFunc makes a connection, and ends it.
type dialFunc func(ctx context.Context, to netip.AddrPort) error

// connector gives one that connects by TCP. The connection ends with a reset: a close would leave an entry for two
// minutes in the connection-tracking table, and here a socket for one.
func connector(mark uint32) dialFunc {
	d := net.Dialer{Control: ownmark.Control(mark), KeepAlive: -1}
	return func(ctx context.Context, to netip.AddrPort) error {
		conn, err := d.DialContext(ctx, "tcp", to.String())
		if err != nil {
			return err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		return conn.Close()
	}
}

// result is that of one check.
type result struct {
	target *target
	began  time.Time
	// fault is empty if the endpoint has answered.
	fault string
	// unclear says that the check tells nothing about the endpoint.
	unclear bool
	// panicked is the panic of the check.
	panicked error
}

func (c *Checker) check(ctx context.Context, t *target) result {
	r := result{target: t, began: time.Now()}
	limited, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	err := c.dial(limited, t.addr)
	switch {
	case err == nil:
	case ctx.Err() != nil || short(err):
		r.unclear = true
	default:
		r.fault = c.words(err)
	}
	return r
}

// short reports whether this host lacks what a connection takes: descriptors, memory, ports.
func short(err error) bool {
	for _, lack := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EADDRNOTAVAIL} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// words says what failed, without the address.
func (c *Checker) words(err error) string {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return fmt.Sprintf("no answer within %s", c.settings.Timeout)
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
