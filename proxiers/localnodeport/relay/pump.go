package relay

import "golang.org/x/sys/unix"

const (
	// copySize is the buffer of a loop. A read that fills it makes the flow a bulk flow.
	copySize = 64 << 10
	// turns is how often a flow may read before the loop turns to the others.
	turns = 8
)

// pump moves what there is from the side source to the other one, until the source has no more, the other
// side takes no more, or others should have their turn. c may have ended afterwards.
func (l *loop) pump(c *conn, source int) {
	src, dst, f := &c.sides[source], &c.sides[1-source], &c.flows[source]
	for range turns {
		var errno unix.Errno
		switch {
		case f.held != nil:
			errno = l.flush(c, source)
		case f.end:
			l.finish(c, source)
			return
		case src.flags&readable == 0:
			return
		default:
			errno = l.move(c, source)
		}
		switch {
		case errno != 0:
			l.abort(c)
			return
		case dst.flags&blocked != 0:
			return
		}
	}
	l.again = append(l.again, token{c.index, c.generation, source})
}

// move reads once, and writes it too if it was copied.
func (l *loop) move(c *conn, source int) unix.Errno {
	src, f := &c.sides[source], &c.flows[source]
	if f.bulk {
		if h := l.pipes.take(); h != nil {
			return l.fill(c, source, h)
		}
	}
	n, errno := recv(src.fd, l.buf, 0)
	if errno != 0 || n == 0 {
		return l.nothing(c, source, errno)
	}
	f.bulk = n == len(l.buf) && src.flags&urgent == 0
	if n < len(l.buf) && src.flags&(hungUp|urgent) == 0 {
		// A read that is not filled has emptied the queue of the socket; what comes later is a new event.
		src.flags &^= readable
	}
	written, errno := l.write(c, source, l.buf[:n])
	if errno == 0 && written < n {
		f.held = copied(l.buf[written:n])
	}
	return errno
}

// fill reads into a pipe.
func (l *loop) fill(c *conn, source int, h *held) unix.Errno {
	n, errno := splice(c.sides[source].fd, h.in, pipeSize)
	if errno != 0 || n == 0 {
		l.pipes.release(h)
		return l.nothing(c, source, errno)
	}
	h.left = n
	f := &c.flows[source]
	f.held = h
	f.bulk = n >= bulkSize
	return 0
}

// nothing handles a read without bytes: the end of the stream, or nothing at the moment.
func (l *loop) nothing(c *conn, source int, errno unix.Errno) unix.Errno {
	switch errno {
	case 0:
		c.flows[source].end = true
	case unix.EAGAIN:
		c.sides[source].flags &^= readable
	case unix.EINTR:
	default:
		return errno
	}
	return 0
}

// flush writes what is held for the flow of source.
func (l *loop) flush(c *conn, source int) unix.Errno {
	dst, f := &c.sides[1-source], &c.flows[source]
	h := f.held
	if !h.isPipe() {
		n, errno := l.write(c, source, h.bytes)
		h.bytes = h.bytes[n:]
		if len(h.bytes) == 0 {
			l.drop(f)
		}
		return errno
	}
	undelay(dst)
	n, errno := splice(h.out, dst.fd, h.left)
	if errno != 0 {
		return l.wrote(c, source, 0, h.left, errno)
	}
	want := h.left
	h.left -= n
	if h.left == 0 {
		l.drop(f)
	}
	// A pipe is written piece by piece: less than all of it is no sign that the socket is full.
	return l.wrote(c, source, n, min(want, n), 0)
}

func (l *loop) write(c *conn, source int, p []byte) (int, unix.Errno) {
	dst := &c.sides[1-source]
	undelay(dst)
	n, errno := send(dst.fd, p)
	if errno != 0 {
		n = 0
	}
	return n, l.wrote(c, source, n, len(p), errno)
}

// undelay sets TCP_NODELAY before the second write: the first one goes out at once in any case, and many
// connections have no second one.
func undelay(dst *side) {
	if dst.flags&(written|noDelay) == written {
		setOption(dst.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		dst.flags |= noDelay
	}
}

// wrote counts n bytes written, and waits for the other side when it did not take all that it could.
func (l *loop) wrote(c *conn, source, n, all int, errno unix.Errno) unix.Errno {
	dst := &c.sides[1-source]
	switch errno {
	case 0, unix.EAGAIN, unix.EINTR:
	default:
		return errno
	}
	l.bytes[source].add(uint64(n))
	dst.flags |= written
	if n == all || errno == unix.EINTR {
		return 0
	}
	dst.flags |= blocked
	if dst.flags&watchOut != 0 {
		return 0
	}
	dst.flags |= watchOut
	e := event(watched|unix.EPOLLOUT, 1-source, c.index, c.generation)
	return epollCtl(l.epoll, unix.EPOLL_CTL_MOD, dst.fd, &e) // reports at once if it has room again
}

// finish passes the end of the stream of source on, or closes when it was the second one.
func (l *loop) finish(c *conn, source int) {
	f := &c.flows[source]
	switch {
	case f.done:
	case c.flows[1-source].done:
		l.end(c, closeFD)
	default:
		f.done = true
		shutdownWrite(c.sides[1-source].fd)
	}
}

// abort ends a connection after an error of one side; the other one gets a reset.
func (l *loop) abort(c *conn) {
	l.resets.add(1)
	l.end(c, resetFD)
}
