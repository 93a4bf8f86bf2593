package relay

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// dialTick is how often a loop looks for dials that took too long, in milliseconds.
	dialTick = 250
	// youth is the age from which a connection has keep-alive on the endpoint's side, in milliseconds. Most
	// connections end before and are spared the system calls.
	youth = 10_000
	// Keep-alive, in seconds: a peer that is gone is noticed after idle + interval * count.
	keepAliveIdle, keepAliveInterval, keepAliveCount = 60, 15, 5
)

// dial is the state of a connection until an endpoint has answered.
type dial struct {
	client   netip.AddrPort
	target   Target
	endpoint netip.AddrPort
	tried    []netip.AddrPort
}

func (l *loop) newDial(from netip.AddrPort) *dial {
	d := new(dial)
	if n := len(l.dials); n > 0 {
		d = l.dials[n-1]
		l.dials = l.dials[:n-1]
	}
	*d = dial{client: from, tried: d.tried[:0]}
	return d
}

func (l *loop) endDial(c *conn) {
	c.dial.target = nil
	if len(l.dials) < maxSpare {
		l.dials = append(l.dials, c.dial)
	}
	c.dial = nil
}

// dialNext begins to dial endpoints until one does not fail at once, or resets the client.
func (l *loop) dialNext(c *conn) {
	d := c.dial
	for {
		d.target = *c.port.target.Load()
		var ok bool
		if d.endpoint, ok = d.target.Pick(d.client, d.tried); !ok {
			l.noEndpoint.add(1)
			l.end(c, resetFD)
			return
		}
		if len(d.tried) > 0 {
			l.retries.add(1)
		}
		if !l.dial(c) {
			return
		}
	}
}

// dial begins to dial the endpoint. True: it failed at once.
func (l *loop) dial(c *conn) bool {
	s := &c.sides[endpoint]
	fd, errno := l.socket(c.dial.endpoint)
	if errno == 0 {
		*s = side{fd: fd}
		if errno = connect(fd, c.dial.endpoint); errno == unix.EINPROGRESS || errno == 0 {
			errno = l.greet(c)
		}
	}
	if errno == 0 {
		e := event(watched, tagEndpoint, c.index, c.generation)
		if s.flags&watchOut != 0 {
			e.Events |= unix.EPOLLOUT
		}
		errno = epollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &e)
	}
	if errno != 0 && s.flags&written != 0 {
		l.abort(c) // bytes of the client are gone
		return false
	}
	switch errno {
	case 0:
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ENOSPC:
		// The host is to blame, not the endpoint: let the dial run out of time, and then begin again.
		l.hangUp(c)
		l.starve(fmt.Errorf("%w: %w", ErrDescriptors, errno))
	default:
		l.dialFailed(c, errno)
		return true
	}
	if s.flags&written != 0 {
		l.established(c)
		return false
	}
	l.table.push(dialing, c, l.now)
	return false
}

// greet sends what the client has sent already. On this host a dial is often done when connect(2)
// returns, though it says EINPROGRESS; then this spares a turn of the loop.
func (l *loop) greet(c *conn) unix.Errno {
	s, f := &c.sides[endpoint], &c.flows[client]
	if f.held == nil {
		s.flags |= watchOut
		return 0
	}
	n, errno := send(s.fd, f.held.bytes)
	if errno == unix.EAGAIN {
		s.flags |= watchOut
		return 0
	}
	if errno != 0 {
		return errno
	}
	s.flags |= written
	l.bytes[client].add(uint64(n))
	if f.held.bytes = f.held.bytes[n:]; len(f.held.bytes) > 0 {
		s.flags |= blocked | watchOut
		return 0
	}
	l.drop(f)
	return 0
}

// socket makes a socket, with the reserve if need be. Accepting pauses until there is a reserve again.
func (l *loop) socket(to netip.AddrPort) (int32, unix.Errno) {
	fd, errno := socket(to)
	if (errno != unix.EMFILE && errno != unix.ENFILE) || l.reserve < 0 {
		return fd, errno
	}
	closeFD(l.reserve)
	l.reserve = -1
	l.starve(fmt.Errorf("%w: %w", ErrDescriptors, errno))
	return socket(to)
}

// hangUp closes the socket of a dial that did not succeed.
func (l *loop) hangUp(c *conn) {
	if s := &c.sides[endpoint]; s.fd >= 0 {
		closeFD(s.fd)
		s.fd = -1
	}
}

func (l *loop) dialFailed(c *conn, err error) {
	d := c.dial
	l.hangUp(c)
	l.dialFailures.add(1)
	d.tried = append(d.tried, d.endpoint)
	d.target.Failed(d.endpoint, err)
}

// answered handles the first event of a socket that is being dialled.
func (l *loop) answered(c *conn, events uint32) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP|unix.EPOLLOUT) == 0 {
		return
	}
	l.table.leave(c)
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		l.dialFailed(c, socketError(c.sides[endpoint].fd))
		l.dialAgain(c)
		return
	}
	generation := c.generation
	l.established(c)
	if events &^= unix.EPOLLOUT; events != 0 && l.table.find(c.index, generation) != nil {
		l.ready(c, endpoint, events)
	}
}

// established begins to relay. c may have ended afterwards.
func (l *loop) established(c *conn) {
	l.endDial(c)
	l.table.push(young, c, l.now)
	generation := c.generation
	l.pump(c, client) // the client may have sent something already
	if l.table.find(c.index, generation) == nil {
		return
	}
	e := event(watched, tagClient, c.index, c.generation)
	if errno := epollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.sides[client].fd, &e); errno != 0 {
		l.abort(c)
	}
}

// dialAgain continues after a failed dial, unless the client has reset the connection.
func (l *loop) dialAgain(c *conn) {
	if _, errno := recv(c.sides[client].fd, l.buf[:1], unix.MSG_PEEK); errno != 0 && errno != unix.EAGAIN {
		l.abort(c)
		return
	}
	l.dialNext(c)
}

// expire handles dials that took too long, and connections that have grown up.
func (l *loop) expire() {
	for c := l.table.oldest(dialing); c != nil && l.now-c.since >= l.relay.dialTimeout; c = l.table.oldest(dialing) {
		l.table.leave(c)
		if c.sides[endpoint].fd < 0 { // there was no descriptor
			l.dialNext(c)
			continue
		}
		l.dialFailed(c, os.ErrDeadlineExceeded)
		l.dialAgain(c)
	}
	for c := l.table.oldest(young); c != nil && l.now-c.since >= youth; c = l.table.oldest(young) {
		l.table.leave(c)
		keepAlive(c.sides[endpoint].fd)
		if !c.port.plain {
			keepAlive(c.sides[client].fd)
		}
	}
}

// keepAlive has the kernel look whether the peer is still there.
func keepAlive(fd int32) {
	setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveIdle)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveInterval)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount)
}
