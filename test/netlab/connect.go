package netlab

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"edgeway/proxiers/plan"
)

// Flow describes a connection that a host opens.
type Flow struct {
	Protocol plan.Protocol
	// From must be an address of the connecting host. If From is the zero Addr, the socket is not bound, and the kernel
	// chooses the address and port.
	From netip.Addr
	To   netip.AddrPort
	// Mark is the mark of the packets that the host sends over the connection, or 0 for no mark.
	Mark uint32
	// Wait is the maximum time to wait for a response. Without a response, the outcome is Silent. For TCP with a
	// ReplyWait, Connect limits only the handshake to Wait.
	Wait time.Duration
	// ReplyWait is the maximum time that Connect waits for the server's reply over an established TCP connection, or 0
	// for Wait. The kernel completes the handshake, but the server may have to wait for a CPU.
	ReplyWait time.Duration
}

// Result classifies the outcome of a connection.
type Result uint8

const (
	// Silent means that the client received no packet.
	Silent Result = iota
	// Served means that one of the lab's servers responded.
	Served
	// Refused means that the client received an ICMP "port unreachable" message.
	Refused
	// Reset means that the client received a TCP reset: the packet reached a host on which no program listens on the
	// port.
	Reset
	// Unreachable means that the client received an ICMP "unreachable" message from the gateway. No host has the
	// destination address, and no rule on the node redirected the packet.
	Unreachable
	// Failed means that another error occurred. Outcome.Problem describes the error.
	Failed
)

// String returns the name of the result in lower case.
func (a Result) String() string {
	return [...]string{"silent", "served", "refused", "reset", "unreachable", "failed"}[a]
}

// Outcome is the result that the client of a connection observed.
type Outcome struct {
	Result Result
	// Server is the name of the server that responded. Seen is the client's address as the server saw it.
	Server string
	Seen   netip.AddrPort
	// Problem describes the error if Result is Failed.
	Problem string
	// Repeats is the number of times that the client repeated its request over UDP or SCTP.
	Repeats int
}

// String describes the outcome for test logs.
func (o Outcome) String() string {
	switch o.Result {
	case Served:
		return fmt.Sprintf("served by %s, which saw the client address %s", o.Server, o.Seen.Addr())
	case Failed:
		return "failed: " + o.Problem
	default:
		return o.Result.String()
	}
}

// Connect opens a connection, sends one request, and closes the connection.
func (h *Host) Connect(f Flow) Outcome {
	return h.callFromFreePort("Connect", f).Outcome
}

// callFromFreePort makes the host's process open a connection from an unused source port. All hosts share one
// source-port counter.
func (h *Host) callFromFreePort(method string, f Flow) (r Reply) {
	for range 100 {
		r = Reply{}
		if err := h.call(method, Request{Flow: f, Port: h.lab.port()}, &r); err != nil {
			return Reply{Outcome: failed(err)}
		}
		if !r.InUse {
			break
		}
	}
	return r
}

// Session is an open connection. Over TCP and UDP, a session can send many requests. Over SCTP, each call to Ask sends
// the same INIT again.
type Session struct {
	host *Host
	id   int
}

// Open opens a connection and keeps it open. If Open fails, the session is nil and the outcome describes the reason.
// UDP and SCTP connections can fail only in Ask.
func (h *Host) Open(f Flow) (*Session, Outcome) {
	r := h.callFromFreePort("Open", f)
	if r.ID == 0 {
		return nil, r.Outcome
	}
	return &Session{h, r.ID}, Outcome{}
}

// Ask sends a request over the connection and waits for the server's response.
func (s *Session) Ask(wait time.Duration) Outcome {
	var r Reply
	if err := s.host.call("Ask", Request{ID: s.id, Flow: Flow{Wait: wait}}, &r); err != nil {
		return failed(err)
	}
	return r.Outcome
}

// Close closes the connection. For TCP, Close resets the connection.
func (s *Session) Close() { _ = s.host.call("Close", s.id, &struct{}{}) }

func failed(err error) Outcome { return Outcome{Result: Failed, Problem: err.Error()} }

func parseGreeting(line string) Outcome {
	line = strings.TrimSpace(line)
	end := max(0, strings.LastIndexByte(line, ' ')) // the name may contain spaces
	name, peer := line[:end], strings.TrimSpace(line[end:])
	seen, err := netip.ParseAddrPort(peer)
	if err != nil {
		return failed(fmt.Errorf("answer %q: %w", line, err))
	}
	return Outcome{Result: Served, Server: name, Seen: seen}
}
