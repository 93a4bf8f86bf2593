package netlab

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"edgeway/proxiers/plan"
)

// Flow is a connection to try.
type Flow struct {
	Protocol plan.Protocol
	// From must be an address of the host that connects. Without one the socket is not bound, and the kernel
	// chooses its address and port.
	From netip.Addr
	To   netip.AddrPort
	// Mark is the packet mark that the host's packets have; 0: none.
	Mark uint32
	// Wait is how long silence is waited for before it is called that.
	Wait time.Duration
}

// Answer is what became of a connection.
type Answer uint8

// The answers.
const (
	// Silent: nothing came back.
	Silent Answer = iota
	// Served: a server of the lab answered.
	Served
	// Refused: an ICMP "port unreachable" came back.
	Refused
	// Reset: a TCP reset came back: the packet reached a host where nobody listens.
	Reset
	// Unreachable: an ICMP "unreachable" came back from the gateway: nobody has the address, and no rule of
	// the node took the packet.
	Unreachable
	// Failed: something else, which Outcome.Problem tells.
	Failed
)

// String gives the answer in lower case.
func (a Answer) String() string {
	return [...]string{"silent", "served", "refused", "reset", "unreachable", "failed"}[a]
}

// Outcome is what a client saw.
type Outcome struct {
	Answer Answer
	// Server is the name of the server that answered, and Seen the client as that server saw it.
	Server string
	Seen   netip.AddrPort
	// Problem says what has Failed.
	Problem string
}

// String is one line for a person.
func (o Outcome) String() string {
	switch o.Answer {
	case Served:
		return fmt.Sprintf("served by %s, which saw %s", o.Server, o.Seen.Addr())
	case Failed:
		return "failed: " + o.Problem
	default:
		return o.Answer.String()
	}
}

// Connect opens a connection, asks once, and closes it.
func (h *Host) Connect(f Flow) Outcome {
	return h.fromFreePort("Connect", f).Outcome
}

// fromFreePort asks the host's process for a connection. Source ports are the lab's: all hosts together use each once.
func (h *Host) fromFreePort(method string, f Flow) (r Reply) {
	for range 100 {
		r = Reply{}
		if err := h.call(method, Question{Flow: f, Port: h.lab.port()}, &r); err != nil {
			return Reply{Outcome: failed(err)}
		}
		if !r.InUse {
			break
		}
	}
	return r
}

// Session is an open connection. TCP and UDP sessions may ask many times; an SCTP session repeats its
// INIT.
type Session struct {
	host *Host
	id   int
}

// Open opens a connection that stays. The session is nil when that failed, and the outcome says why;
// UDP and SCTP find out only when asking.
func (h *Host) Open(f Flow) (*Session, Outcome) {
	r := h.fromFreePort("Open", f)
	if r.ID == 0 {
		return nil, r.Outcome
	}
	return &Session{h, r.ID}, Outcome{}
}

// Ask sends a question and waits for the server's answer.
func (s *Session) Ask(wait time.Duration) Outcome {
	var r Reply
	if err := s.host.call("Ask", Question{ID: s.id, Flow: Flow{Wait: wait}}, &r); err != nil {
		return failed(err)
	}
	return r.Outcome
}

// Close ends the connection; TCP with a reset.
func (s *Session) Close() { _ = s.host.call("Close", s.id, &struct{}{}) }

func failed(err error) Outcome { return Outcome{Answer: Failed, Problem: err.Error()} }

// parseGreeting is the inverse of greeting.
func parseGreeting(line string) Outcome {
	line = strings.TrimSpace(line)
	end := max(0, strings.LastIndexByte(line, ' ')) // the name may have spaces
	name, peer := line[:end], strings.TrimSpace(line[end:])
	seen, err := netip.ParseAddrPort(peer)
	if err != nil {
		return failed(fmt.Errorf("answer %q: %w", line, err))
	}
	return Outcome{Answer: Served, Server: name, Seen: seen}
}
