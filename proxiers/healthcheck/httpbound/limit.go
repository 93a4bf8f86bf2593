package httpbound

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Limit bounds the total number of open connections to several servers. If a new connection exceeds the limit, Limit
// does not reject it, but closes the oldest connection of the client with the most connections. A client that opens
// many connections therefore cannot block a load balancer's health check.
type Limit struct {
	most int

	mu   sync.Mutex
	open []*conn // oldest first
}

// NewLimit returns a Limit with no open connections. most is the maximum number of open connections.
func NewLimit(most int) *Limit { return &Limit{most: most} }

// Listener wraps inner to count the accepted connections towards the limit.
func (l *Limit) Listener(inner net.Listener) net.Listener { return &listener{inner, l} }

type listener struct {
	net.Listener
	limit *Limit
}

func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, limit: l.limit, client: clientOf(inner)}
	if victim := l.limit.admit(c); victim != nil {
		_ = victim.Conn.Close() // the server then calls Close on the conn, which closes the connection again
	}
	return c, nil
}

// client identifies a client by its network, or by its user if the connection uses a Unix socket.
type client struct {
	network netip.Prefix
	user    uint32
}

// clientOf returns the client that opened a connection. Addresses in the same IPv6 network count as one client, because
// a host can use any number of addresses in its network.
func clientOf(c net.Conn) client {
	if local, ok := c.(*net.UnixConn); ok {
		peer, err := Peer(local)
		if err != nil {
			return client{}
		}
		return client{user: peer.Uid}
	}
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return client{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits) // fails only if bits is too large for the family
	return client{network: network}
}

// Peer returns the credentials of the process that connected to a Unix socket. c may be a connection that a listener
// from Limit.Listener accepted.
func Peer(c net.Conn) (peer *unix.Ucred, err error) {
	if counted, ok := c.(*conn); ok {
		c = counted.Conn
	}
	local, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return peer, cmp.Or(controlErr, err)
}

// admit counts a connection. If the connection exceeds the limit, admit returns a connection that the caller must
// close.
func (l *Limit) admit(c *conn) (victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= l.most {
		return nil
	}
	count := make(map[client]int)
	for _, o := range l.open {
		count[o.client]++
	}
	victim = l.open[0]
	for _, o := range l.open {
		if count[o.client] > count[victim.client] {
			victim = o
		}
	}
	l.remove(victim)
	return victim
}

func (l *Limit) remove(c *conn) {
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

type conn struct {
	net.Conn
	limit  *Limit
	client client
}

func (c *conn) Close() error {
	c.limit.mu.Lock()
	c.limit.remove(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite allows net/http (Go 1.26) to deliver an error response to a client that is still sending its request.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
