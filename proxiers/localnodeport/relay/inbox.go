package relay

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// inbox is what others want a loop to do.
type inbox struct {
	mu       sync.Mutex
	calls    []func()
	arrivals []arrival
	pending  atomic.Bool // not empty
	sleeping atomic.Bool // the loop is in epoll_wait, or about to be
}

// arrival is a client that another loop accepted.
type arrival struct {
	fd   int32
	port *Port
	from netip.AddrPort
}

// post has a loop call f.
func (l *loop) post(f func()) {
	l.inbox.mu.Lock()
	l.inbox.calls = append(l.inbox.calls, f)
	l.inbox.mu.Unlock()
	l.wake()
}

func (l *loop) wake() {
	l.inbox.pending.Store(true)
	if l.inbox.sleeping.Load() {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(int(l.wakeup), one[:])
	}
}

// receive does what others want.
func (l *loop) receive() {
	l.inbox.mu.Lock()
	calls, arrivals := l.inbox.calls, l.inbox.arrivals
	l.inbox.calls, l.inbox.arrivals = nil, l.arrivals[:0]
	l.inbox.pending.Store(false)
	l.inbox.mu.Unlock()
	for _, a := range arrivals {
		l.open(a.fd, a.port, a.from)
	}
	l.arrivals = arrivals
	for _, f := range calls {
		f()
	}
}

// give hands a client over to this loop, from another one.
func (l *loop) give(a arrival) {
	l.active.Add(1)
	l.inbox.mu.Lock()
	l.inbox.arrivals = append(l.inbox.arrivals, a)
	l.inbox.mu.Unlock()
	l.wake()
}
