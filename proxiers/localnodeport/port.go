package localnodeport

import (
	"context"
	"net/netip"
	"time"

	"edgeway/proxiers/localnodeport/relay"
	"edgeway/proxiers/messageid"
)

// If an address is in use, the delay before the next attempt starts at minDelay, and doubles until it reaches maxDelay.
const (
	minDelay = time.Second
	maxDelay = 30 * time.Second
)

type port struct {
	at     netip.AddrPort
	target *target
	// If listening failed, relayed is nil and err is the error. delay is the time before the next attempt.
	relayed *relay.Port
	err     error
	delay   time.Duration
	due     time.Time
}

func (p *Proxier) serve(at netip.AddrPort, b servicePool) {
	if p.relay == nil {
		p.relay = relay.New(relay.Options{OnPause: p.paused, Contain: p.contain, OnPanic: p.panicked})
	}
	known := p.ports[at]
	switch {
	case known == nil:
		known = &port{at: at, target: newTarget(b, p.logger)}
		p.ports[at] = known
		p.listen(known)
	case known.target.name != b.svc.Name:
		known.target = newTarget(b, p.logger)
		if known.relayed != nil {
			known.relayed.SetTarget(known.target)
		}
	default:
		known.target.update(b)
	}
}

func (p *Proxier) stop(at netip.AddrPort) {
	known := p.ports[at]
	if known == nil {
		return
	}
	delete(p.ports, at)
	delete(p.pendingPorts, at)
	if known.relayed != nil {
		known.relayed.Stop()
		p.sockets.Release(at)
		p.listeners[familyIndex(at.Addr())]--
	}
}

func (p *Proxier) listen(known *port) {
	logger := p.logger.With("address", known.at, "service", known.target.name.String())
	if known.relayed, known.err = p.accept(known); known.err == nil {
		p.listeners[familyIndex(known.at.Addr())]++
		delete(p.pendingPorts, known.at)
		if known.delay > 0 {
			logger.Info("NodePort is served on loopback")
		}
		return
	}
	p.failures[familyIndex(known.at.Addr())]++
	if known.delay == 0 {
		logger.Warn("cannot listen on a loopback NodePort, retrying",
			"message_id", messageid.LoopbackNodePortUnbound, "error", known.err)
	}
	known.delay = min(max(2*known.delay, minDelay), maxDelay)
	known.due = time.Now().Add(known.delay)
	p.pendingPorts[known.at] = known
}

func (p *Proxier) accept(known *port) (*relay.Port, error) {
	l, err := p.sockets.Listen(known.at)
	if err != nil {
		return nil, err
	}
	relayed, err := p.relay.Serve(l, known.target)
	if err != nil {
		p.sockets.Release(known.at)
	}
	return relayed, err
}

// Due implements proxiers.Maintainer.
func (p *Proxier) Due() (due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range p.pendingPorts {
		if due.IsZero() || known.due.Before(due) {
			due = known.due
		}
	}
	return due
}

// Maintain retries listening on the addresses whose delay has expired.
func (p *Proxier) Maintain(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, known := range p.pendingPorts {
		if !known.due.After(now) {
			p.listen(known)
		}
	}
	return nil
}
