// Package ownmark marks the packets of the daemon's own connections, so that the host's rules leave them alone: see
// proxiers.OwnMark.
package ownmark

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Control returns a net.Dialer.Control that marks a socket's packets, or nil if the mark is 0. net.Dialer does not use
// it for its own questions to name servers. Without CAP_NET_ADMIN, as in a dry run by a user, packets have no mark.
func Control(mark uint32) func(network, address string, c syscall.RawConn) error {
	if mark == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) })
	}
}
