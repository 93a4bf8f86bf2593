package control

import (
	"context"
	"errors"
	"net"
	"os"

	"edgeway/proxiers/healthcheck/httpbound"
)

// peerKey is the context key for the peer's user ID.
type peerKey struct{}

// withPeer adds the peer's user ID to the context if the kernel reports it.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	peer, err := httpbound.Peer(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer.Uid)
}

var errNotOwner = errors.New("only root and the daemon's user may reload the daemon: run the command as root")

// isOwner reports whether the peer is root or the daemon's user. Members of the socket's group, and peers whose user ID
// is unknown, can query the daemon but cannot change anything.
func isOwner(ctx context.Context) bool {
	uid, known := ctx.Value(peerKey{}).(uint32)
	return known && (uid == 0 || int(uid) == os.Geteuid())
}
