package sim

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// network carries connections in memory, because the kernel's sockets block outside a synctest bubble. If a peer writes
// data while the network is silent, the network delivers the data when the silence ends, as TCP does.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	conns     map[*conn]struct{}
	silent    bool
	dials     int
}

func newNetwork() *network {
	return &network{listeners: map[string]*listener{}, conns: map[*conn]struct{}{}}
}

type listener struct {
	net  *network
	addr string
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (n *network) listen(addr string) *listener {
	l := &listener{net: n, addr: addr, in: make(chan net.Conn, 64), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = l
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		if l.net.listeners[l.addr] == l {
			delete(l.net.listeners, l.addr)
		}
		l.net.mu.Unlock()
		close(l.done)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.addr) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// dialTimeout is the timeout of the net.Dialer in the kube source.
const dialTimeout = 10 * time.Second

// dial blocks while the network is silent, because no host responds to a SYN.
func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(addr), Err: err}
	}
	for deadline := time.Now().Add(dialTimeout); ; {
		n.mu.Lock()
		n.dials++
		silent, l := n.silent, n.listeners[addr]
		n.mu.Unlock()
		if !silent && l == nil {
			return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
		}
		if !silent {
			near, far := n.pair(addr)
			l.in <- far
			return near, nil
		}
		if time.Now().After(deadline) {
			return fail(os.ErrDeadlineExceeded)
		}
		select { // TCP repeats a SYN after a second
		case <-ctx.Done():
			return fail(ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

func (n *network) pair(addr string) (near, far *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, b := newStream(n.silent), newStream(n.silent)
	near = &conn{net: n, in: a, out: b, remote: address(addr)}
	far = &conn{net: n, in: b, out: a, remote: "192.0.2.1:40000"}
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	return near, far
}

func (n *network) each(f func(*conn)) {
	n.mu.Lock()
	var all []*conn
	for c := range n.conns {
		all = append(all, c)
	}
	n.mu.Unlock()
	for _, c := range all {
		f(c)
	}
}

// setSilent holds back all data if silent is true, and otherwise delivers the data that the network has held back.
func (n *network) setSilent(silent bool) {
	n.mu.Lock()
	n.silent = silent
	n.mu.Unlock()
	n.each(func(c *conn) { c.in.hold(silent) })
}

func (n *network) reset() {
	n.each(func(c *conn) { c.in.end(os.NewSyscallError("read", syscall.ECONNRESET)) })
}

// silenceConns silences all existing connections forever, as a NAT router does after a restart.
func (n *network) silenceConns() { n.each(func(c *conn) { c.in.lose() }) }

type conn struct {
	net     *network
	in, out *stream
	remote  address
}

func (c *conn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *conn) Write(p []byte) (int, error) {
	if c.in.dead() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Addr: c.remote, Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	return c.out.write(p)
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	c.in.end(net.ErrClosed)
	c.out.finish()
	return nil
}

func (c *conn) LocalAddr() net.Addr               { return address("192.0.2.1:40000") }
func (c *conn) RemoteAddr() net.Addr              { return c.remote }
func (c *conn) SetReadDeadline(t time.Time) error { c.in.deadline(t); return nil }
func (c *conn) SetWriteDeadline(time.Time) error  { return nil } // writes never block
func (c *conn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
