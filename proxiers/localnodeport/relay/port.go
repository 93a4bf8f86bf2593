package relay

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Port is a listening socket from which a Relay accepts connections.
type Port struct {
	relay     *Relay
	listener  *net.TCPListener // owns a duplicate of the caller's descriptor
	target    atomic.Pointer[Target]
	stopped   chan struct{}
	accepting sync.WaitGroup
}

// SetTarget changes the Target for all later dials, and does not affect running connections.
func (p *Port) SetTarget(t Target) { p.target.Store(&t) }

// Stop stops accepting connections. After Stop has returned, connections in the accept queue wait for the next Serve,
// or until the socket is closed. Stop does not interrupt accepted connections. A second Stop does nothing.
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

// At the limit of connections, accept holds one accepted connection that waits.
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
			// Other errors, such as EINVAL after a shutdown of the socket, must not cause a busy loop either.
			r.starved(err)
			p.wait(shortage)
		}
	}
}

func (p *Port) start(client *net.TCPConn) {
	c := &conn{port: p, client: client}
	for !p.relay.admit(c) {
		p.relay.paused(limitPause, ErrLimit)
		if p.wait(tick) {
			c.reset()
			return
		}
	}
	p.relay.contain(&p.relay.running, c.run)
}

func (p *Port) wait(d time.Duration) (stopped bool) {
	select {
	case <-p.stopped:
		return true
	case <-time.After(d):
		return false
	}
}
