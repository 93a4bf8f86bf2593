// Package relay moves the bytes of TCP connections between clients on this host and endpoints, with
// half-closes and resets passed on.
//
// A few event loops do all of it with epoll and descriptors that never block. A connection has no
// goroutine and no buffer of its own: 10,000 idle ones take about two megabytes. Short messages are
// copied through one buffer per loop; a stream that fills that buffer goes through a pipe by
// splice(2), so that its bytes are never seen in user space. Bytes are read from one side only when the
// other side takes them.
//
// What one side does, the other sees: the end of its stream (FIN) is passed on while bytes still flow
// the other way, a reset is passed on as a reset. A dial that fails is repeated with the next endpoint
// before the client notices; when there is none left, the client is reset. There is no idle timeout:
// TCP keep-alive finds peers that are gone.
package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edgeway/proxiers"
)

const (
	// maxLoops is the limit of loops: one moves several gigabytes a second.
	maxLoops = 8
	// defaultDialTimeout is in milliseconds. The kernel has repeated a lost SYN after one second by then.
	defaultDialTimeout = 3000
	// shutdownTick is how often Shutdown looks whether connections have ended.
	shutdownTick = 20 * time.Millisecond
)

// Reasons why accepting pauses, for Options.Paused. Clients that connect during a pause wait in the queues of
// the listening sockets.
var (
	// ErrDescriptors: the process (or the host) has no descriptor, or no memory, for one more
	// connection. The error that Paused gets wraps the errno too.
	ErrDescriptors = errors.New("out of descriptors")
	// ErrLimit: Options.MaxConnections are open.
	ErrLimit = errors.New("limit of connections reached")
	// ErrClosed comes from Serve after Shutdown.
	ErrClosed = errors.New("relay is shut down")
)

// Options of a Relay. The zero value is good.
type Options struct {
	// Loops is the number of event loops, at most 8; 0: GOMAXPROCS.
	Loops int
	// MaxConnections is the greatest number of open connections of all Ports; 0: what the process's
	// limit of descriptors (RLIMIT_NOFILE) allows, less a part for the rest of the process.
	MaxConnections int
	// DialTimeout is how long an endpoint may take to answer a dial before the next one is tried; 0: 3 s.
	// It is kept to a quarter of a second.
	DialTimeout time.Duration
	// Paused, if not nil, is told when accepting pauses, and why (ErrDescriptors, ErrLimit): once for each
	// episode; one has passed when accepting has continued for ten seconds. It runs on an event loop: it must
	// not block and must not call the Relay, its Ports or anything that waits for these.
	Paused func(reason error)
	// Contain runs the event loops; it may be nil.
	Contain proxiers.Contain
}

// Target chooses the endpoints of a Port's connections. Its methods run on the event loops, several
// at a time: they must be quick, and must not wait for a goroutine that is in Serve, Stop or Shutdown
// (these wait for the loops): do not take a lock that is held around such a call.
type Target interface {
	// Pick gives the endpoint to dial for a connection of client. tried holds the endpoints that
	// failed for this connection already, oldest first; it is valid only during the call. False: there
	// is none, or none left; the client is reset.
	Pick(client netip.AddrPort, tried []netip.AddrPort) (endpoint netip.AddrPort, ok bool)
	// Failed tells that endpoint could not be dialled: a syscall.Errno, or os.ErrDeadlineExceeded when it
	// did not answer in time. Pick follows.
	Failed(endpoint netip.AddrPort, err error)
}

// Relay is a set of event loops that Ports share. It is meant to be made once in a process and to
// outlive the Ports, so that connections continue when the configuration is reloaded and other Ports take
// over the listening sockets. Its methods may be called from several goroutines.
type Relay struct {
	loops       []*loop
	dialTimeout uint32 // milliseconds
	report      func(error)
	start       time.Time
	active      atomic.Int64 // connections
	limit       atomic.Int64
	pauses      [pauseKinds]pauseLog
	running     sync.WaitGroup // loops

	mu     sync.Mutex // held while the loops are told of Ports
	ports  map[uint32]*Port
	last   uint32 // number of the last Port
	closed bool   // no more Ports
}

// New starts a Relay. It holds goroutines and a few descriptors until Shutdown.
//
// GOMAXPROCS should be greater than the number of loops, which is main's to see to. With no processor idle, Go's
// scheduler looks every 20 µs (Go 1.26) for one whose thread waits in a system call, as loops do, and takes it away: at
// many short connections that cost a tenth of the CPU time.
func New(opts Options) (*Relay, error) {
	r := &Relay{
		dialTimeout: uint32(opts.DialTimeout.Milliseconds()), report: opts.Paused, start: time.Now(),
		ports: map[uint32]*Port{},
	}
	if r.dialTimeout == 0 {
		r.dialTimeout = defaultDialTimeout
	}
	count := opts.Loops
	if count == 0 {
		count = runtime.GOMAXPROCS(0)
	}
	count = min(count, maxLoops)
	for range count {
		l, err := newLoop(r)
		if err != nil {
			for _, made := range r.loops {
				made.free()
			}
			return nil, fmt.Errorf("event loop: %w", err)
		}
		r.loops = append(r.loops, l)
	}
	r.SetMaxConnections(opts.MaxConnections)
	for _, l := range r.loops {
		opts.Contain.Go(&r.running, "relay", l.run)
	}
	return r, nil
}

// Serve accepts connections of a listening TCP socket and relays them to the endpoints of t until
// Port.Stop. The socket stays the caller's: Serve works on a duplicate of the descriptor, so that the
// caller may close l, or keep it for a later Serve, of this Relay or another one. Nobody else should
// accept from it until then.
//
// The options TCP_NODELAY and keep-alive are set on the listening socket, because accepted ones inherit
// them; it is made non-blocking.
//
// Two things make connections dearer than they need be. Go makes listening sockets for Multipath TCP unless
// net.ListenConfig.SetMultipathTCP says no: about a quarter more CPU time for each. And a *net.TCPListener is
// registered in Go's own poller as long as it is open, so that each connection wakes a thread of Go's scheduler
// as well: up to a fifth more. An *os.File made of a blocking descriptor (unix.SetNonblock(fd, false) before
// os.NewFile) is not registered.
func (r *Relay) Serve(l Listener, t Target) (*Port, error) {
	fd, plain, err := duplicate(l)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		closeFD(fd)
		return nil, ErrClosed
	}
	r.last++
	p := &Port{relay: r, fd: fd, plain: plain, number: r.last}
	p.SetTarget(t)
	r.ports[p.number] = p
	r.each(func(l *loop) {
		l.ports[p.number] = p
		if !l.pause.on {
			l.listen(p)
		}
	})
	return p, nil
}

// SetMaxConnections changes Options.MaxConnections. Open connections stay when there are more.
func (r *Relay) SetMaxConnections(n int) {
	if n == 0 {
		n = affordable(len(r.loops))
	}
	r.limit.Store(int64(n))
}

// Shutdown stops all Ports, waits until the last connection has ended or ctx is done, resets those
// that are left, ends the loops and frees everything. The error is ctx's when connections were reset.
// With a ctx that is done already it ends everything at once. A process that exits does not need it.
func (r *Relay) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	ports := slices.Collect(maps.Values(r.ports))
	r.mu.Unlock()
	if !first {
		r.running.Wait()
		return nil
	}
	for _, p := range ports {
		p.Stop()
	}
	var err error
	for tick := time.NewTicker(shutdownTick); r.active.Load() > 0 && err == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for _, l := range r.loops {
		l.post(l.resetAll)
	}
	r.running.Wait()
	return err
}
