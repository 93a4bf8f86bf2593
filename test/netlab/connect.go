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
	// From must be an address of the host that connects.
	From netip.Addr
	To   netip.AddrPort
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
	// Failed: something else, which Outcome.Err tells.
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
	Err    error
}

// String is one line for a person.
func (o Outcome) String() string {
	switch o.Answer {
	case Served:
		return fmt.Sprintf("served by %s, which saw %s", o.Server, o.Seen.Addr())
	case Failed:
		return "failed: " + o.Err.Error()
	default:
		return o.Answer.String()
	}
}

// Connect opens a connection, asks once, and closes it.
func (h *Host) Connect(f Flow) Outcome {
	s, outcome := h.Open(f)
	if s == nil {
		return outcome
	}
	defer s.Close()
	return s.Ask(f.Wait)
}

// Session is an open connection. TCP and UDP sessions may ask many times; an SCTP session repeats its
// INIT.
type Session struct {
	*socket
}

// Open opens a connection that stays. The session is nil when that failed, and the outcome says why;
// UDP and SCTP find out only when asking.
func (h *Host) Open(f Flow) (*Session, Outcome) {
	s, err := h.newSocket(f)
	if err != nil {
		return nil, Outcome{Answer: Failed, Err: err}
	}
	if f.Protocol == plan.TCP {
		if outcome := s.established(f.Wait); outcome.Answer != Served {
			s.Close()
			return nil, outcome
		}
	}
	return &Session{s}, Outcome{}
}

// Ask sends a question and waits for the server's answer. It asks again every second, as a resolver
// does, so that one lost packet is not taken for a refusal to serve.
func (s *Session) Ask(wait time.Duration) Outcome {
	deadline := time.Now().Add(wait)
	for {
		next := time.Now().Add(time.Second)
		if next.After(deadline) || s.flow.Protocol == plan.TCP {
			next = deadline
		}
		outcome := s.ask(next)
		if outcome.Answer != Silent || next.Equal(deadline) {
			return outcome
		}
	}
}

// parseGreeting is the inverse of greeting.
func parseGreeting(line string) Outcome {
	line = strings.TrimSpace(line)
	end := max(0, strings.LastIndexByte(line, ' ')) // the name may have spaces
	name, peer := line[:end], strings.TrimSpace(line[end:])
	seen, err := netip.ParseAddrPort(peer)
	if err != nil {
		return Outcome{Answer: Failed, Err: fmt.Errorf("answer %q: %w", line, err)}
	}
	return Outcome{Answer: Served, Server: name, Seen: seen}
}
