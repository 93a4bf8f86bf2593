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

type dialFunc func(ctx context.Context, to netip.AddrPort) error

// connector returns a dialFunc that connects over TCP and closes the connection with a reset. A normal close would
// leave an entry in the connection-tracking table for two minutes, and a socket on this host for one minute.
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

type result struct {
	began time.Time
	// fault explains why the check failed, or is "" if the endpoint responded.
	fault string
	// unclear reports whether the result is insufficient for a verdict on the endpoint.
	unclear bool
}

func (c *Checker) check(ctx context.Context, endpoint netip.AddrPort) result {
	r := result{began: time.Now()}
	limited, cancel := context.WithTimeout(ctx, c.settings.timeout())
	defer cancel()
	err := c.dial(limited, endpoint)
	switch {
	case err == nil:
	case ctx.Err() != nil || isExhausted(err):
		r.unclear = true
	default:
		r.fault = c.failureText(err)
	}
	return r
}

// isExhausted reports whether err means that this host has run out of file descriptors, memory or ports.
func isExhausted(err error) bool {
	for _, lack := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EADDRNOTAVAIL} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// failureText describes a failure, but omits the endpoint's address.
func (c *Checker) failureText(err error) string {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return fmt.Sprintf("no answer within %s", c.settings.timeout())
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
