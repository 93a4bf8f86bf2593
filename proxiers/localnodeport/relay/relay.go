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
	"net/netip"
	"time"
)

// Reasons why accepting pauses, for Options.Paused. Clients that connect meanwhile wait in the queues of
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
	// Loops is the number of event loops; 0: one for each CPU that Go uses.
	Loops int
	// MaxConnections is the greatest number of open connections of all Ports; 0: what the process's
	// limit of descriptors (RLIMIT_NOFILE) allows, less a part for the rest of the process.
	MaxConnections int
	// DialTimeout is how long an endpoint may take to answer a dial before the next one is tried; 0: 3 s.
	// It is kept to a quarter of a second.
	DialTimeout time.Duration
	// Paused, if not nil, is told when accepting pauses, and why (ErrDescriptors, ErrLimit): once for each
	// episode; one has passed when accepting went on for ten seconds. It runs on an event loop: it must
	// not block and must not call the Relay, its Ports or anything that waits for these.
	Paused func(reason error)
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

// Stats are counts since the Relay was made, but for Active.
type Stats struct {
	Accepted         uint64 // connections of clients
	Active           uint64 // connections open now, those that are being dialled included
	ToEndpoint       uint64 // bytes written to endpoints
	ToClient         uint64 // bytes written to clients
	DialFailures     uint64 // dials that failed
	Retries          uint64 // dials that followed a failed one
	NoEndpoint       uint64 // clients reset because Target.Pick had no endpoint (left)
	Resets           uint64 // connections that a reset or another error of one side ended
	DescriptorPauses uint64 // times that accepting paused for ErrDescriptors
	LimitPauses      uint64 // times that accepting paused for ErrLimit
}

// Relay is a set of event loops that Ports share. It is meant to be made once in a process and to
// outlive the Ports, so that connections go on when the configuration is loaded anew and other Ports take
// over the listening sockets. Its methods may be called from several goroutines.
type Relay struct{}

// New starts a Relay. It holds goroutines and a few descriptors until Shutdown.
func New(opts Options) (*Relay, error) { return nil, errors.ErrUnsupported }

// Serve accepts connections of a listening TCP socket and relays them to the endpoints of t until
// Port.Stop. The socket stays the caller's: Serve works on a duplicate of the descriptor, so that the
// caller may close l, or keep it for a later Serve, of this Relay or another one. Nobody else should
// accept from it meanwhile.
//
// The options TCP_NODELAY and keep-alive are set on the listening socket, because accepted ones inherit
// them; it is made non-blocking.
//
// A *net.TCPListener is registered in Go's own poller too, which wakes a thread for each connection for
// nothing. An *os.File of a listening socket that was blocking when the File was made is not.
func (r *Relay) Serve(l Listener, t Target) (*Port, error) { return nil, errors.ErrUnsupported }

// SetMaxConnections changes Options.MaxConnections. Open connections stay when there are more.
func (r *Relay) SetMaxConnections(n int) {}

// Stats reads the counters. It costs a few atomic loads for each loop.
func (r *Relay) Stats() Stats { return Stats{} }

// Shutdown stops all Ports, waits until the last connection has ended or ctx is done, resets those
// that are left, ends the loops and frees everything. The error is ctx's when connections were reset.
// With a ctx that is done already it ends everything at once. A process that exits does not need it.
func (r *Relay) Shutdown(ctx context.Context) error { return errors.ErrUnsupported }
