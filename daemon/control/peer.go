package control

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerKey is the context key of a connection's peer: the user ID of the program that connected.
type peerKey struct{}

// withPeer adds the peer's user ID, if the kernel knows it.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	peer, err := peerOf(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer.Uid)
}

// peerOf returns the process at the other end of a connection.
func peerOf(conn net.Conn) (peer *unix.Ucred, err error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return peer, cmp.Or(controlErr, err)
}

var errNotOwner = errors.New("only root and the daemon's user may reload: run the command as root")

// mayReload reports whether the peer may reload. Members of the socket's group and unknown peers may not.
func mayReload(ctx context.Context) bool {
	uid, known := ctx.Value(peerKey{}).(uint32)
	return known && (uid == 0 || int(uid) == os.Geteuid())
}
