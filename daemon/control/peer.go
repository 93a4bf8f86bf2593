package control

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peerKey is the key of a connection's peer in its context: the user as whom the program at the other end connected.
type peerKey struct{}

// withPeer adds the peer.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return ctx
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer.Uid)
}

var errNotOwner = errors.New("only root and the daemon's user may have it reload: run the command as root")

// mayReload is false for members of the socket's group, and where the peer is not known.
func mayReload(ctx context.Context) bool {
	uid, known := ctx.Value(peerKey{}).(uint32)
	return known && (uid == 0 || int(uid) == os.Geteuid())
}
