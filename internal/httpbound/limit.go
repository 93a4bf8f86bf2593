package httpbound

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Limit bounds how many connections the servers that share it have open. It refuses nobody: in place of one too many, the
// oldest connection of the client with the most is closed. So a crowd of connections takes no place from the one that
// a probe needs for some milliseconds.
type Limit struct {
	most int

	mu   sync.Mutex
	open []*conn // the oldest first
}

// NewLimit allows for this many connections.
func NewLimit(most int) *Limit { return &Limit{most: most} }

// Listener gives a listener whose connections count.
func (l *Limit) Listener(inner net.Listener) net.Listener { return &listener{inner, l} }

type listener struct {
	net.Listener
	limit *Limit
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, limit: l.limit, client: clientOf(inner.RemoteAddr())}
	if victim := l.limit.admit(c); victim != nil {
		_ = victim.Conn.Close() // its server notices and closes it once more
	}
	return c, nil
}

// clientOf gives the address that counts as one client: of IPv6 the network, as a host has as many addresses of it as
// it likes.
func clientOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	client, _ := ip.Prefix(bits) // fails only for bits that the family does not have
	return client
}

// admit adds a connection and gives the one that has to make room.
func (l *Limit) admit(c *conn) (victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= l.most {
		return nil
	}
	count := make(map[netip.Prefix]int)
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

// remove does nothing when c has left already.
func (l *Limit) remove(c *conn) {
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

type conn struct {
	net.Conn
	limit  *Limit
	client netip.Prefix
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.limit.mu.Lock()
	c.limit.remove(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http (Go 1.26) send a refusal to a client that is still sending.
func (c *conn) CloseWrite() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}
