package relay

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watched are the events that every socket of a connection is registered for, once and edge-triggered.
const watched = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET&0xffffffff

// yieldEvery is how often a loop gives other goroutines a turn, in milliseconds. Go's scheduler (1.26)
// takes a processor that has run the same goroutine for 10 ms away when it finds the goroutine in a system
// call, and then looks for more of that kind every 20 µs, which costs more.
const yieldEvery = 5

// maxSpare is how many unused buffers and dials a loop keeps of each.
const maxSpare = 64

// loop owns connections: everything of them happens on its goroutine.
type loop struct {
	relay    *Relay
	epoll    int32
	wakeup   int32 // an eventfd, edge-triggered and never read
	reserve  int32 // a descriptor to spend on a connection that was accepted with the last one; -1: spent
	events   [256]unix.EpollEvent
	buf      []byte
	from     unix.RawSockaddrAny
	pipes    pipes
	stores   []*held // unused ones, maxSpare at most
	table    table
	again    []token
	spare    []token
	arrivals []arrival // the other buffer of the inbox
	dials    []*dial   // unused ones, maxSpare at most
	ports    map[uint32]*Port
	pause    pause
	start    time.Time
	now      uint32 // milliseconds since start; wraps, so only differences mean something
	yielded  uint32
	quit     bool

	active atomic.Int64 // connections; read by other loops
	inbox  inbox

	counters
}

// token names a flow of a connection that may have ended.
type token struct {
	index, generation uint32
	source            int
}

func newLoop(r *Relay) (*loop, error) {
	l := &loop{
		relay: r, buf: make([]byte, copySize), ports: map[uint32]*Port{}, start: time.Now(), reserve: -1,
		epoll: -1, wakeup: -1,
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	l.epoll = int32(epoll)
	wakeup, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		l.free()
		return nil, err
	}
	l.wakeup = int32(wakeup)
	e := event(unix.EPOLLIN|unix.EPOLLET&0xffffffff, tagWake, 0, 0)
	if errno := epollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.wakeup, &e); errno != 0 {
		l.free()
		return nil, errno
	}
	l.keepReserve()
	return l, nil
}

func (l *loop) free() {
	l.pipes.closeAll()
	for _, fd := range []int32{l.epoll, l.wakeup, l.reserve} {
		if fd >= 0 {
			closeFD(fd)
		}
	}
}

// keepReserve makes sure of the reserve; false: there is no descriptor for it.
func (l *loop) keepReserve() bool {
	if l.reserve < 0 {
		if fd, err := unix.FcntlInt(uintptr(l.wakeup), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			l.reserve = int32(fd)
		}
	}
	return l.reserve >= 0
}

func (l *loop) run() {
	for !l.quit {
		n, _ := epollWait(l.epoll, l.events[:], l.timeout())
		l.inbox.sleeping.Store(false)
		l.now = uint32(time.Since(l.start).Milliseconds())
		for i := range max(n, 0) {
			l.handle(&l.events[i])
		}
		l.repeat()
		l.expire()
		l.resume()
		if l.inbox.pending.Load() {
			l.receive()
		}
		if l.now-l.yielded >= yieldEvery {
			l.yielded = l.now
			runtime.Gosched()
		}
	}
	l.free()
}

// timeout is how long to wait for events, in milliseconds.
func (l *loop) timeout() int {
	if len(l.again) > 0 {
		return 0
	}
	l.inbox.sleeping.Store(true)
	switch {
	case l.inbox.pending.Load():
		return 0
	case l.pause.on:
		return pauseTick
	case l.table.oldest(dialing) != nil:
		return dialTick
	}
	if c := l.table.oldest(young); c != nil {
		return max(int(int32(c.since+youth-l.now)), 1)
	}
	return -1
}

func (l *loop) handle(e *unix.EpollEvent) {
	tag, index, generation := parseEvent(e)
	switch tag {
	case tagWake:
	case tagPort:
		if p := l.ports[index]; p != nil {
			l.accept(p)
		}
	default:
		if c := l.table.find(index, generation); c != nil {
			l.ready(c, tag, e.Events)
		}
	}
}

// ready handles what happened to one side of a connection.
func (l *loop) ready(c *conn, side int, events uint32) {
	if c.dial != nil {
		l.answered(c, events)
		return
	}
	s := &c.sides[side]
	if events&unix.EPOLLPRI != 0 {
		s.flags |= urgent
	}
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.flags |= hungUp
	}
	if events&unix.EPOLLOUT != 0 {
		s.flags &^= blocked
	}
	generation := c.generation
	if events&^unix.EPOLLOUT != 0 {
		s.flags |= readable
		l.pump(c, side)
	}
	if events&unix.EPOLLOUT != 0 && l.table.find(c.index, generation) != nil {
		l.pump(c, 1-side)
	}
	if events&unix.EPOLLERR != 0 && l.table.find(c.index, generation) != nil {
		l.abort(c)
	}
}

// repeat gives the flows their turn that had more to move.
func (l *loop) repeat() {
	l.again, l.spare = l.spare[:0], l.again
	for _, t := range l.spare {
		if c := l.table.find(t.index, t.generation); c != nil {
			l.pump(c, t.source)
		}
	}
}

// end closes both sides of a connection by how, and forgets it.
func (l *loop) end(c *conn, how func(int32)) {
	for i := range c.flows {
		if c.flows[i].held != nil {
			l.drop(&c.flows[i])
		}
	}
	for i := range c.sides {
		if fd := c.sides[i].fd; fd >= 0 {
			how(fd)
		}
	}
	l.table.leave(c)
	if c.dial != nil {
		l.endDial(c)
	}
	l.table.release(c)
	l.active.Add(-1)
	l.relay.active.Add(-1)
}

// resetAll ends the loop and its connections.
func (l *loop) resetAll() {
	l.quit = true
	for _, slab := range l.table.slabs {
		for i := range slab.conns {
			if c := &slab.conns[i]; c.open {
				l.end(c, resetFD)
			}
		}
	}
}
