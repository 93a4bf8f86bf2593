// Package relay relays TCP connections from clients on this host to endpoints. The relay forwards data, the end of a
// stream (FIN) and connection resets. A Target chooses the endpoints.
//
// Each connection has two goroutines, one for each direction. The relay reads from one side only when the other side
// accepts data. A connection uses about 16 kB of memory and two descriptors.
//
// After a failed dial, the relay tries the next endpoint without closing the client's connection. When no endpoint is
// left to try, the relay resets the client's connection. The relay has no idle timeout, because TCP keep-alive detects
// dead peers. The relay closes a half-closed connection after ten minutes without data. The relay does not forward
// urgent data (MSG_OOB).
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/contain"
)

const (
	// defaultDialTimeout is long enough for the kernel to retransmit an unanswered SYN after one second.
	defaultDialTimeout = 3 * time.Second
	// defaultHalfClosedTimeout is the default value of Options.HalfClosedTimeout. An endpoint that does not read may
	// not notice that the client has closed the connection.
	defaultHalfClosedTimeout = 10 * time.Minute
	// A connection needs at most connectionMemory bytes of memory and connectionDescriptors file descriptors.
	connectionMemory      = 16 << 10
	connectionDescriptors = 2
	tick                  = 50 * time.Millisecond
	// shortagePause is the pause after an accept or a dial fails for lack of descriptors or memory.
	shortagePause = 250 * time.Millisecond
	// episodeGap is the time without a pause after which an episode of pauses ends.
	episodeGap = 10 * time.Second
)

// The relay passes ErrDescriptors or ErrLimit to Options.OnPause. Clients that connect during a pause wait in the
// accept queues.
var (
	// ErrDescriptors means that there are not enough file descriptors or not enough memory for another connection. The
	// error that the relay passes to OnPause also wraps the errno.
	ErrDescriptors = errors.New("out of descriptors")
	// ErrLimit means that the relay has reached the limit on open connections.
	ErrLimit = errors.New("connection limit reached")
	// ErrClosed is the error that Serve returns after Shutdown.
	ErrClosed = errors.New("relay is shut down")
)

// Options configures a Relay. Only OnPanic is required.
type Options struct {
	// MaxConnections is the maximum number of open connections across all Ports. If MaxConnections is 0, connections
	// may use a quarter of the memory limit (debug.SetMemoryLimit), and all descriptors that RLIMIT_NOFILE allows
	// except a reserve for other uses.
	MaxConnections int
	// DialTimeout is the maximum time to connect to an endpoint. DialTimeout defaults to 3 s.
	DialTimeout time.Duration
	// HalfClosedTimeout limits how long a half-closed connection may be idle. The relay closes an idle half-closed
	// connection after at most twice HalfClosedTimeout. HalfClosedTimeout defaults to 10 minutes.
	HalfClosedTimeout time.Duration
	// If OnPause is not nil, the relay calls it once for each episode of pauses in accepting connections. The relay
	// passes ErrDescriptors or ErrLimit as the reason. An episode ends after ten seconds without a pause.
	OnPause func(reason error)
	// Contain runs the goroutines that accept connections. Contain may be nil.
	Contain proxiers.Contain
	// A panic in a connection's goroutine ends only that connection, and the relay passes the panic to OnPanic.
	OnPanic func(err error)
}

// Target chooses the endpoints for a Port's connections. A Target must be safe for concurrent use.
type Target interface {
	// Pick returns the endpoint to dial for a connection from client. tried lists the endpoints that the relay failed
	// to dial for the same connection, in the order of the attempts. If no endpoint is left, Pick returns false and the
	// relay resets the client's connection.
	Pick(client netip.AddrPort, tried []netip.AddrPort) (endpoint netip.AddrPort, ok bool)
	// The relay calls Failed after a dial to the endpoint fails, and then calls Pick again. The error wraps
	// os.ErrDeadlineExceeded after a timeout, and otherwise a syscall.Errno.
	Failed(endpoint netip.AddrPort, err error)
}

// Relay holds the connections of its Ports. A process should create one Relay that outlives its Ports. After a
// configuration reload, new Ports take over the listening sockets, and the Relay's open connections continue. A Relay
// is safe for concurrent use.
type Relay struct {
	opts    Options
	pauses  [pauseKinds]pauseCounter
	pipes   pipePool
	running sync.WaitGroup // counts the goroutines of connections
	// Shutdown cancels dialCtx when it resets the connections.
	dialCtx  context.Context //nolint:containedctx // shared by the dials of all connections
	endDials context.CancelFunc

	accepted, toEndpoint, toClient, dialFailures, retries, noEndpoint, resets atomic.Uint64

	mu     sync.Mutex
	ports  map[*Port]struct{}
	conns  map[*conn]struct{}
	closed bool // Serve returns ErrClosed
}

// New returns a Relay without Ports.
func New(opts Options) *Relay {
	if opts.DialTimeout == 0 {
		opts.DialTimeout = defaultDialTimeout
	}
	if opts.HalfClosedTimeout == 0 {
		opts.HalfClosedTimeout = defaultHalfClosedTimeout
	}
	r := &Relay{opts: opts, ports: map[*Port]struct{}{}, conns: map[*conn]struct{}{}}
	r.dialCtx, r.endDials = context.WithCancel(context.Background())
	return r
}

// Serve accepts connections from a listening TCP socket until the caller calls Port.Stop, and relays the connections to
// t's endpoints. Serve sets the socket to non-blocking mode and duplicates its descriptor. The caller may therefore
// close l, or keep it for a later call to Serve. No other code may accept connections from the socket before Port.Stop
// returns.
//
// With Go 1.26, net.ListenConfig.SetMultipathTCP(false) reduces the CPU time for a connection by a quarter.
func (r *Relay) Serve(l *os.File, t Target) (*Port, error) {
	generic, err := net.FileListener(l)
	if err != nil {
		return nil, fmt.Errorf("listening socket: %w", err)
	}
	listener, ok := generic.(*net.TCPListener)
	if !ok {
		_ = generic.Close()
		return nil, fmt.Errorf("listening socket: %w", unix.EINVAL)
	}
	p := &Port{relay: r, listener: listener, stopped: make(chan struct{})}
	p.SetTarget(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = listener.Close()
		return nil, ErrClosed
	}
	r.ports[p] = struct{}{}
	r.opts.Contain.Go(&p.accepting, "relay", p.accept)
	return p, nil
}

// Shutdown stops all Ports and waits for the connections to end. When ctx is done, Shutdown resets the remaining
// connections. If Shutdown resets connections, it returns ctx's error.
func (r *Relay) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	ports := make([]*Port, 0, len(r.ports))
	for p := range r.ports {
		ports = append(ports, p)
	}
	r.mu.Unlock()
	for _, p := range ports {
		p.Stop()
	}
	var err error
	for tick := time.NewTicker(tick); r.active() > 0 && err == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	r.mu.Lock()
	for c := range r.conns {
		c.reset()
	}
	r.mu.Unlock()
	r.endDials()
	r.running.Wait()
	r.pipes.closeAll()
	return err
}

// startGoroutine starts a connection's goroutine, and does not restart it after a panic, because a panic ends the
// connection.
func (r *Relay) startGoroutine(group *sync.WaitGroup, run func()) {
	group.Go(func() {
		if err := contain.Call(func() error { run(); return nil }); err != nil {
			r.opts.OnPanic(err)
		}
	})
}

func (r *Relay) active() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// limit returns the maximum number of open connections, and reads the process's limits on every call.
func (r *Relay) limit() int {
	if r.opts.MaxConnections > 0 {
		return r.opts.MaxConnections
	}
	most := debug.SetMemoryLimit(-1) / 4 / connectionMemory
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		most = min(most, int64(min(files.Cur-min(files.Cur/4, 512)-uint64(2*pipeLimit()), 1<<30)/connectionDescriptors))
	}
	return int(max(most, 1))
}

func (r *Relay) admit(c *conn) bool {
	limit := r.limit()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conns) >= limit {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *Relay) forget(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

type pauseKind int

const (
	descriptorPause pauseKind = iota
	limitPause
	pauseKinds
)

// pauseCounter groups pauses of one kind into episodes.
type pauseCounter struct {
	mu    sync.Mutex
	count uint64
	last  time.Time
}

// recordPause counts and reports only the first pause of an episode.
func (r *Relay) recordPause(kind pauseKind, reason error) {
	p, now := &r.pauses[kind], time.Now()
	p.mu.Lock()
	goesOn := now.Sub(p.last) < episodeGap
	if p.last = now; !goesOn {
		p.count++
	}
	p.mu.Unlock()
	if !goesOn && r.opts.OnPause != nil {
		r.opts.OnPause(reason)
	}
}

// lacksResources reports whether err means that the host lacks descriptors or memory for a socket. If lacksResources
// returns true, it also records a pause.
func (r *Relay) lacksResources(err error) bool {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, errno) {
			r.recordPause(descriptorPause, fmt.Errorf("%w: %w", ErrDescriptors, errno))
			return true
		}
	}
	return false
}

// Stats holds counts since the creation of the Relay, except for Active, which is a current value.
type Stats struct {
	Accepted         uint64
	Active           uint64 // includes connections whose endpoint is still being dialled
	ToEndpoint       uint64 // bytes written to endpoints
	ToClient         uint64 // bytes written to clients
	DialFailures     uint64
	Retries          uint64 // dials after a failed dial
	NoEndpoint       uint64 // connections reset because Target.Pick returned no endpoint
	Resets           uint64 // connections that ended with a reset or another error
	DescriptorPauses uint64 // episodes of pauses because of ErrDescriptors
	LimitPauses      uint64 // episodes of pauses because of ErrLimit
}

// Stats returns the current statistics.
func (r *Relay) Stats() Stats {
	s := Stats{
		Accepted: r.accepted.Load(), Active: uint64(r.active()), ToEndpoint: r.toEndpoint.Load(),
		ToClient:     r.toClient.Load(),
		DialFailures: r.dialFailures.Load(), Retries: r.retries.Load(), NoEndpoint: r.noEndpoint.Load(),
		Resets: r.resets.Load(),
	}
	for kind, count := range map[pauseKind]*uint64{descriptorPause: &s.DescriptorPauses, limitPause: &s.LimitPauses} {
		r.pauses[kind].mu.Lock()
		*count = r.pauses[kind].count
		r.pauses[kind].mu.Unlock()
	}
	return s
}
