package relay

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The relay copies at most largeChunk bytes at a time, or smallChunk bytes while maxLarge large chunks are in use. A
// stalled stream keeps its chunk, and thousands of large chunks would exceed the daemon's memory. An idle stream has no
// chunk.
//
// The relay does not use splice(2) through io.Copy: Go (1.26) requests a pipe of 1 MB for each direction, and the
// kernel allows a user without CAP_SYS_RESOURCE only 64 MB of pipes (fs.pipe-user-pages-soft). Each further pipe has 8
// kB, which costs half of the throughput, and Go keeps such pipes for later connections.
const (
	largeChunk = 64 << 10
	smallChunk = 8 << 10
	maxLarge   = 256
)

var (
	largeChunks = sync.Pool{New: func() any { return newChunk(largeChunk) }}
	smallChunks = sync.Pool{New: func() any { return newChunk(smallChunk) }}
	largeInUse  atomic.Int32
)

func newChunk(size int) *[]byte {
	chunk := make([]byte, size)
	return &chunk
}

func takeChunk() *[]byte {
	if largeInUse.Add(1) <= maxLarge {
		return largeChunks.Get().(*[]byte)
	}
	largeInUse.Add(-1)
	return smallChunks.Get().(*[]byte)
}

func returnChunk(chunk *[]byte) {
	if len(*chunk) < largeChunk {
		smallChunks.Put(chunk)
		return
	}
	largeChunks.Put(chunk)
	largeInUse.Add(-1)
}

type conn struct {
	port   *Port
	client *net.TCPConn
	// The relay sets finToClient when it forwards a FIN to the client. The relay sets finToEndpoint when it forwards a
	// FIN to the endpoint.
	finToClient, finToEndpoint atomic.Bool

	mu       sync.Mutex
	endpoint *net.TCPConn // nil until the dial has succeeded
	over     bool         // set when the relay resets or closes the connection
}

// run relays the connection until it ends. A panic in run resets the connections to both peers.
func (c *conn) run() {
	r := c.port.relay
	defer r.forget(c)
	defer c.reset()
	if c.isOver() || !c.dial() {
		return
	}
	var other sync.WaitGroup
	r.startGoroutine(&other, func() { c.copy(c.client, c.endpoint, &r.toClient) })
	c.copy(c.endpoint, c.client, &r.toEndpoint)
	other.Wait()
	c.close()
}

func (c *conn) dial() bool {
	r := c.port.relay
	from := addrPort(c.client.RemoteAddr())
	dialer := net.Dialer{Timeout: r.opts.DialTimeout}
	for tried := []netip.AddrPort(nil); ; {
		target := *c.port.target.Load()
		to, ok := target.Pick(from, tried)
		if !ok {
			r.noEndpoint.Add(1)
			return false
		}
		if len(tried) > 0 {
			r.retries.Add(1)
		}
		conn, err := dialer.DialContext(r.dialCtx, "tcp", to.String())
		// If the host lacks resources, the endpoint has not failed.
		for err != nil && r.lacksResources(err) && !c.isOver() {
			time.Sleep(shortagePause)
			conn, err = dialer.DialContext(r.dialCtx, "tcp", to.String())
		}
		if err == nil {
			return c.setEndpoint(conn.(*net.TCPConn))
		}
		if c.isOver() {
			return false
		}
		r.dialFailures.Add(1)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			err = os.ErrDeadlineExceeded
		}
		tried = append(tried, to)
		target.Failed(to, err)
	}
}

// setEndpoint stores the endpoint connection and reports whether the client's connection is still open.
func (c *conn) setEndpoint(endpoint *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_ = endpoint.Close()
		return false
	}
	c.endpoint = endpoint
	return true
}

func (c *conn) ended(to *net.TCPConn) *atomic.Bool {
	if to == c.client {
		return &c.finToClient
	}
	return &c.finToEndpoint
}

// wasReset reports whether the peer ended the stream with a TCP reset. The kernel (6.18) reports a reset only once. If
// the copy in the opposite direction has already received the reset error, a read returns io.EOF. The goroutine that
// copies in the opposite direction may already have closed the socket. After a reset, an open socket is in the CLOSE
// state. After a FIN from the peer, the socket is in CLOSE_WAIT, unless the relay sent its FIN first.
func (c *conn) wasReset(from *net.TCPConn) bool {
	raw, err := from.SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	err = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return err != nil || info != nil && info.State == unix.BPF_TCP_CLOSE && !c.ended(from).Load()
}

// copy copies the data in one direction and forwards the FIN. An error or a panic resets the connections to both peers.
func (c *conn) copy(to, from *net.TCPConn, count *atomic.Uint64) {
	passed := false
	defer func() {
		if !passed {
			c.reset()
		}
	}()
	half := c.port.relay.opts.HalfClosedTimeout
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	for {
		n, err := copyChunk(to, raw)
		count.Add(uint64(n))
		switch {
		case err == nil && !c.ended(from).Load():
		case errors.Is(err, io.EOF) && !c.wasReset(from):
			c.ended(to).Store(true)
			_ = to.CloseWrite()
			_ = to.SetReadDeadline(time.Now().Add(half))
			passed = true
			return
		case err == nil: // this direction still carries data
			_ = from.SetReadDeadline(time.Now().Add(half))
		default:
			if !c.isOver() {
				c.port.relay.resets.Add(1)
			}
			return
		}
	}
}

// copyChunk waits for data, copies a chunk, and returns the number of copied bytes. At the end of the stream, copyChunk
// returns io.EOF.
func copyChunk(to *net.TCPConn, from syscall.RawConn) (int, error) {
	var chunk *[]byte
	var n int
	var failure error
	err := from.Read(func(fd uintptr) (done bool) {
		chunk, failure = takeChunk(), unix.EINTR
		for failure == unix.EINTR {
			n, failure = unix.Read(int(fd), *chunk)
		}
		if failure == unix.EAGAIN {
			returnChunk(chunk)
			chunk, failure = nil, nil
		}
		return chunk != nil
	})
	if chunk != nil {
		defer returnChunk(chunk)
	}
	if err = errors.Join(err, failure); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return to.Write((*chunk)[:n])
}

func (c *conn) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// reset sends a TCP reset to both peers and discards unsent data. Calling reset again has no effect.
func (c *conn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(true)
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(false)
}

// end closes or resets the connections to both peers. The caller must hold c.mu.
func (c *conn) end(reset bool) {
	if c.over {
		return
	}
	c.over = true
	for _, side := range []*net.TCPConn{c.client, c.endpoint} {
		if side == nil {
			continue
		}
		if reset {
			_ = side.SetLinger(0)
		}
		_ = side.Close()
	}
}

// addrPort removes the IPv6 zone and converts an IPv4-mapped IPv6 address to IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}
