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

const chunkSize = 64 << 10

// chunks holds the buffers for copying. A stream has a buffer only during system calls, so a stalled stream needs no
// buffer.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// bulkSize is the minimum size, in bytes, of a transfer after which the relay tries to move the next data through a
// pipe.
const bulkSize = 16 << 10

// maxDiscards is the maximum number of system calls to remove one chunk from the receive buffer.
const maxDiscards = 1000

type conn struct {
	port   *Port
	client *net.TCPConn
	// The relay sets finToClient when it forwards a FIN to the client, and finToEndpoint when it forwards a FIN to the
	// endpoint.
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
		// A lack of resources on this host does not mean that the endpoint has failed.
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
// copies in the opposite direction may already have closed the socket. After a reset, a socket that the relay has not
// closed yet is in the TCP state CLOSE. After a FIN from the peer, the socket is in CLOSE_WAIT, unless the relay sent
// its FIN first.
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
	source, err := from.SyscallConn()
	if err != nil {
		return
	}
	sink, err := to.SyscallConn()
	if err != nil {
		return
	}
	for bulk := false; ; {
		n, err := c.transfer(sink, source, bulk)
		bulk = n >= bulkSize
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

// transfer waits for data, transfers some of it, and returns the number of bytes transferred. If bulk is true, transfer
// first tries a pipe. At the end of the stream, transfer returns io.EOF.
func (c *conn) transfer(to, from syscall.RawConn, bulk bool) (int, error) {
	if bulk {
		if n, err := c.port.relay.pipes.move(to, from); n > 0 || err != nil {
			return n, err
		}
	}
	return copyChunk(to, from)
}

// copyChunk waits for data, copies a chunk, and returns the number of bytes copied. At the end of the stream, copyChunk
// returns io.EOF. Until the receiver accepts data, the data stays in the kernel's receive buffer.
func copyChunk(to, from syscall.RawConn) (sent int, err error) {
	var failure error
	ended := false
	wait := from.Read(func(fd uintptr) bool {
		var first [1]byte
		var n int
		n, failure = receive(fd, first[:], unix.MSG_PEEK)
		if ended = n == 0 && failure == nil; ended {
			// MSG_PEEK skips an urgent byte but does not remove it. An unread byte would turn the final FIN into a
			// reset. If a signal is pending, the kernel may return EAGAIN, but the relay must not wait, because no
			// event follows the end of the stream.
			if _, failure = receive(fd, first[:], 0); errors.Is(failure, unix.EAGAIN) {
				failure = nil
			}
		}
		return !errors.Is(failure, unix.EAGAIN)
	})
	if err := errors.Join(wait, failure); err != nil {
		return 0, err
	}
	if ended {
		return 0, io.EOF
	}
	err = to.Write(func(fd uintptr) bool {
		sent, failure = copyOnce(fd, from)
		return !errors.Is(failure, unix.EAGAIN)
	})
	return sent, errors.Join(err, failure)
}

// copyOnce sends a chunk of the received data, and then removes the sent bytes from the receive buffer. EAGAIN means
// that the receiver is not accepting data.
func copyOnce(to uintptr, from syscall.RawConn) (sent int, err error) {
	chunk := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(chunk)
	closed := from.Control(func(fd uintptr) {
		var n int
		if n, err = receive(fd, chunk[:], unix.MSG_PEEK); err != nil || n == 0 {
			if errors.Is(err, unix.EAGAIN) {
				err = nil
			}
			return
		}
		if sent, err = send(to, chunk[:n]); err == nil {
			err = discard(fd, chunk[:sent])
		}
	})
	return sent, errors.Join(closed, err)
}

// discard removes len(b) bytes from the receive buffer without copying them again. If a signal is pending when the
// kernel reaches an urgent byte, the kernel returns EAGAIN.
func discard(fd uintptr, b []byte) error {
	for tries := 0; len(b) > 0; tries++ {
		n, err := receive(fd, b, unix.MSG_TRUNC)
		if n <= 0 && !errors.Is(err, unix.EAGAIN) || tries == maxDiscards {
			return io.ErrNoProgress
		}
		b = b[max(n, 0):]
	}
	return nil
}

func receive(fd uintptr, b []byte, flags int) (n int, err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		n, _, err = unix.Recvfrom(int(fd), b, flags|unix.MSG_DONTWAIT)
	}
	return n, err
}

func send(fd uintptr, b []byte) (n int, err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		n, err = unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	return n, err
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

// addrPort returns the address and port of a, and converts an IPv4-mapped IPv6 address to IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}
