package relay

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pauseTick is how often a paused loop checks whether it may continue, in milliseconds.
	pauseTick = 50
	// A loop without descriptors tries again after a time that doubles between these, in milliseconds.
	minBackoff, maxBackoff = 100, 1000
	// episode is how long accepting must continue until the next pause is reported.
	episode = 10 * time.Second
)

// pause is the state of a loop that does not accept.
type pause struct {
	on      bool
	until   uint32 // not before, by the loop's clock
	backoff uint32 // how long the last pause without descriptors was
}

// accept takes one connection from a port. The listening socket is registered level-triggered: when
// there are more, epoll says so at little cost, while an accept4 that finds none has created an inode for nothing.
func (l *loop) accept(p *Port) {
	if l.pause.on {
		return
	}
	if l.relay.active.Load() >= l.relay.limit.Load() {
		l.stop(limitPause, pauseTick, ErrLimit)
		return
	}
	fd, errno := accept(p.fd, &l.from)
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
		return
	case unix.EINVAL: // shutdown(2) has ended the listening socket: the others continue
		l.forget(p)
		return
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		l.starve(fmt.Errorf("%w: %w", ErrDescriptors, errno))
		return
	default:
		// Such as a firewall's EPERM. Whatever it is, a loop must not spin.
		l.starve(fmt.Errorf("accept connection: %w", errno))
		return
	}
	l.accepted.add(1)
	l.relay.active.Add(1)
	l.pause.backoff = 0
	from := addrPort(&l.from)
	if other := l.relay.idlest(l); other != l {
		other.give(arrival{fd, p, from})
		return
	}
	l.active.Add(1)
	l.open(fd, p, from)
}

// starve pauses because there is no descriptor.
func (l *loop) starve(reason error) {
	l.pause.backoff = min(max(2*l.pause.backoff, minBackoff), maxBackoff)
	l.stop(descriptorPause, l.pause.backoff, reason)
}

// stop pauses accepting on this loop for a time in milliseconds.
func (l *loop) stop(kind pauseKind, wait uint32, reason error) {
	l.relay.paused(kind, reason)
	l.pause.until = l.now + wait
	if l.pause.on {
		return
	}
	l.pause.on = true
	for _, p := range l.ports {
		_ = epollCtl(l.epoll, unix.EPOLL_CTL_DEL, p.fd, nil)
	}
}

// resume ends a pause when its time has come and there is room again.
func (l *loop) resume() {
	if !l.pause.on || int32(l.now-l.pause.until) < 0 {
		return
	}
	if l.relay.active.Load() >= l.relay.limit.Load() {
		l.stop(limitPause, pauseTick, ErrLimit)
		return
	}
	if !l.keepReserve() {
		l.starve(fmt.Errorf("%w: %w", ErrDescriptors, unix.EMFILE))
		return
	}
	l.pause.on = false
	for _, p := range l.ports {
		if !l.pause.on {
			l.listen(p)
		}
	}
}

// listen registers a port. Of the loops that are idle only one is woken for a connection.
func (l *loop) listen(p *Port) {
	e := event(unix.EPOLLIN|unix.EPOLLEXCLUSIVE, tagPort, p.number, 0)
	if errno := epollCtl(l.epoll, unix.EPOLL_CTL_ADD, p.fd, &e); errno != 0 {
		l.starve(fmt.Errorf("watch listening socket: %w", errno)) // ENOMEM, ENOSPC: tried again
	}
}

// forget ends the watch of a port.
func (l *loop) forget(p *Port) {
	delete(l.ports, p.number)
	_ = epollCtl(l.epoll, unix.EPOLL_CTL_DEL, p.fd, nil)
}

// open begins a connection with a client.
func (l *loop) open(fd int32, p *Port, from netip.AddrPort) {
	c := l.table.take()
	c.port = p
	c.sides[client] = side{fd: fd, flags: readable}
	if p.plain {
		c.sides[client].flags |= noDelay
	}
	c.sides[endpoint].fd = -1
	c.dial = l.newDial(from)
	if !l.early(c) {
		l.abort(c)
		return
	}
	l.dialNext(c)
}

// early reads what the client has sent already, so that it can go out with the dial. False: a reset.
func (l *loop) early(c *conn) bool {
	s, f, h := &c.sides[client], &c.flows[client], l.store()
	n, errno := recv(s.fd, h.store, 0)
	f.held, h.bytes = h, h.store[:max(n, 0)]
	if n > 0 && n < len(h.store) {
		s.flags &^= readable // a new event, if there is more
	}
	if n <= 0 {
		l.drop(f)
	}
	f.end = n == 0
	return n >= 0 || errno == unix.EAGAIN || errno == unix.EINTR
}
