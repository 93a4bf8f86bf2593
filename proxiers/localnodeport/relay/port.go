package relay

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Port is a listening socket that a Relay accepts connections from.
type Port struct {
	relay     *Relay
	listener  *net.TCPListener // owns a duplicate of the caller's descriptor
	target    atomic.Pointer[Target]
	stopped   chan struct{}
	accepting sync.WaitGroup
}

// SetTarget changes the Target for all later dials, but does not affect open connections.
func (p *Port) SetTarget(t Target) { p.target.Store(&t) }

// Stop stops accepting connections. After Stop returns, connections in the accept queue wait until the next Serve or
// until the caller closes the socket. Stop does not interrupt connections that the relay has accepted. Calling Stop
// again has no effect.
func (p *Port) Stop() {
	r := p.relay
	r.mu.Lock()
	_, open := r.ports[p]
	delete(r.ports, p)
	r.mu.Unlock()
	if open {
		close(p.stopped)
		_ = p.listener.Close()
	}
	p.accepting.Wait()
}

// accept accepts connections until the caller calls Stop. At the connection limit, accept holds one accepted connection
// until another connection ends.
func (p *Port) accept() {
	r := p.relay
	for {
		client, err := p.listener.AcceptTCP()
		switch {
		case err == nil:
			r.accepted.Add(1)
			p.start(client)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// AcceptTCP also returns other errors, such as EINVAL after a shutdown of the socket. After any error,
			// accept waits to avoid a busy loop.
			r.lacksResources(err)
			p.wait(shortagePause)
		}
	}
}

func (p *Port) start(client *net.TCPConn) {
	c := &conn{port: p, client: client}
	for !p.relay.admit(c) {
		p.relay.recordPause(limitPause, ErrLimit)
		if p.wait(tick) {
			c.reset()
			return
		}
	}
	p.relay.startGoroutine(&p.relay.running, c.run)
}

func (p *Port) wait(d time.Duration) (stopped bool) {
	select {
	case <-p.stopped:
		return true
	case <-time.After(d):
		return false
	}
}
