// Package ownmark marks the packets of the daemon's own connections, so that Edgeway's rules ignore them. See
// proxiers.OwnMark.
package ownmark

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Control returns a net.Dialer.Control function that marks a socket's packets, or nil if mark is 0. net.Dialer does not
// call Control for DNS queries. Without CAP_NET_ADMIN, for example in an unprivileged user's dry run, the packets
// remain unmarked.
func Control(mark uint32) func(network, address string, c syscall.RawConn) error {
	if mark == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) })
	}
}
