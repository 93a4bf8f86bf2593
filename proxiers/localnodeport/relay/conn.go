package relay

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// report is how many bytes of a stream are copied until they are counted.
const report = 16 << 20

// conn is one relayed connection.
type conn struct {
	port   *Port
	client *net.TCPConn

	mu       sync.Mutex
	endpoint *net.TCPConn // nil until it has answered
	ended    bool         // by reset, or because it ran
}

// run dials an endpoint and copies in both directions. A panic resets both sides.
func (c *conn) run() {
	r := c.port.relay
	defer r.forget(c)
	defer c.reset()
	if c.isEnded() || !c.dial() {
		return
	}
	var other sync.WaitGroup
	r.contain(&other, func() { c.copy(c.client, c.endpoint, &r.toClient) })
	c.copy(c.endpoint, c.client, &r.toEndpoint)
	other.Wait()
	c.close()
}

// dial tries the endpoints that the Target picks until one answers.
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
		conn, err := dialer.DialContext(r.dials, "tcp", to.String())
		for err != nil && r.starved(err) && !c.isEnded() { // the host is at fault, not the endpoint
			time.Sleep(shortage)
			conn, err = dialer.DialContext(r.dials, "tcp", to.String())
		}
		if err == nil {
			return c.connected(conn.(*net.TCPConn))
		}
		if c.isEnded() {
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

// connected reports whether the connection still waits for the endpoint.
func (c *conn) connected(endpoint *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = endpoint.Close()
		return false
	}
	c.endpoint = endpoint
	return true
}

// copy moves the bytes of one direction and passes the end of the stream on. An error or a panic resets both sides.
func (c *conn) copy(to, from *net.TCPConn, count *atomic.Uint64) {
	passed := false
	defer func() {
		if !passed {
			c.reset()
		}
	}()
	half := c.port.relay.opts.HalfClosed
	for {
		n, err := io.CopyN(to, from, report)
		count.Add(uint64(n))
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite()
			_ = to.SetReadDeadline(time.Now().Add(half))
			passed = true
			return
		case errors.Is(err, os.ErrDeadlineExceeded) && n > 0: // the other direction has ended, and this one is in use
			_ = from.SetReadDeadline(time.Now().Add(half))
		default:
			if !c.isEnded() {
				c.port.relay.resets.Add(1)
			}
			return
		}
	}
}

func (c *conn) isEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// reset ends the connection so that both peers get a reset, whatever is in flight. After the end it does nothing.
func (c *conn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(true)
}

// close ends the connection of which both streams have ended.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(false)
}

// end needs the lock.
func (c *conn) end(reset bool) {
	if c.ended {
		return
	}
	c.ended = true
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

// addrPort returns the address of a peer without the zone or mapping of IPv6.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}
