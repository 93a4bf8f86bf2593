package relay

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Port is one listening socket that a Relay accepts from.
type Port struct {
	relay     *Relay
	listener  *net.TCPListener // of a duplicate
	target    atomic.Pointer[Target]
	stopped   chan struct{}
	accepting sync.WaitGroup
}

// SetTarget changes the Target, from the next dial on. Running connections stay.
func (p *Port) SetTarget(t Target) { p.target.Store(&t) }

// Stop ends accepting: when it returns, no more connections are taken from the listening socket. Those that wait in its
// queue stay there for the next Serve, or until the socket is closed. Connections that were accepted continue until
// they end. A second Stop does nothing.
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

// accept accepts connections until the Port stops. One of them waits here while the limit is reached.
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
			// Another error, such as EINVAL of a socket that was shut down, must not keep a processor busy either.
			r.starved(err)
			p.wait(shortage)
		}
	}
}

// start runs a connection as soon as the limit allows, or resets it when the Port stops before.
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

// wait waits for d, or returns true as soon as the Port stops.
func (p *Port) wait(d time.Duration) (stopped bool) {
	select {
	case <-p.stopped:
		return true
	case <-time.After(d):
		return false
	}
}
