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
	listener  *net.TCPListener // uses a duplicate of the descriptor
	target    atomic.Pointer[Target]
	stopped   chan struct{}
	accepting sync.WaitGroup
}

// SetTarget changes the Target for all later dials. Running connections are not affected.
func (p *Port) SetTarget(t Target) { p.target.Store(&t) }

// Stop stops accepting connections. After Stop has returned, connections in the socket's queue wait for the next Serve,
// or until the socket is closed. Accepted connections continue until they end. A second Stop does nothing.
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

// accept accepts connections until the Port stops. While the limit is reached, accept keeps one accepted connection
// waiting.
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

// start runs a connection as soon as the limit allows, or resets the connection if the Port stops first.
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

// wait waits for d, or returns true immediately if the Port stops.
func (p *Port) wait(d time.Duration) (stopped bool) {
	select {
	case <-p.stopped:
		return true
	case <-time.After(d):
		return false
	}
}
