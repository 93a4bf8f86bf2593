package e2e

import (
	"fmt"
	"net/netip"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// dialTimeout is how long an answer may take before the packets count as dropped. On a busy machine the programs that
// answer wait for a processor; after a second the kernel sends a SYN that was lost once more, and nobody would see the
// loss.
const dialTimeout = 950 * time.Millisecond

// impatience is for the tries of a time that is measured: a lost packet must not stretch it.
const impatience = 100 * time.Millisecond

func flow(h *netlab.Host, protocol plan.Protocol, addr string) netlab.Flow {
	to := netip.MustParseAddrPort(addr)
	return netlab.Flow{Protocol: protocol, From: h.Addr(to.Addr()), To: to, Wait: dialTimeout}
}

// outcome wants each new connection from h to addr to end in one way; see the functions below.
func outcome(h *netlab.Host, protocol plan.Protocol, addr, want string, right func(netlab.Outcome) bool) func() error {
	f := flow(h, protocol, addr)
	return func() error {
		if got := h.Connect(f); !right(got) {
			return fmt.Errorf("%s from %s to %s: %s, want %s", protocol, h.Name, addr, got, want)
		}
		return nil
	}
}

// answersSoon is answers for the measuring of times.
func answersSoon(h *netlab.Host, addr, name string) func() error {
	f := flow(h, plan.TCP, addr)
	f.Wait = impatience
	return func() error {
		if got := h.Connect(f); got.Server != name {
			return fmt.Errorf("TCP from %s to %s: %s, want served by %s", h.Name, addr, got, name)
		}
		return nil
	}
}

// answers wants TCP connections to be answered by the endpoint name, answersUDP datagrams.
func answers(h *netlab.Host, addr, name string) func() error {
	return outcome(h, plan.TCP, addr, "served by "+name, func(o netlab.Outcome) bool { return o.Server == name })
}

func answersUDP(h *netlab.Host, addr, name string) func() error {
	return outcome(h, plan.UDP, addr, "served by "+name, func(o netlab.Outcome) bool { return o.Server == name })
}

// silent wants packets to be dropped.
func silent(h *netlab.Host, addr string) func() error {
	return outcome(h, plan.TCP, addr, "silence", func(o netlab.Outcome) bool { return o.Answer == netlab.Silent })
}

// refused wants "port unreachable".
func refused(h *netlab.Host, addr string) func() error {
	return outcome(h, plan.TCP, addr, "refusal", func(o netlab.Outcome) bool { return o.Answer == netlab.Refused })
}

// unanswered wants a connection to fail in whatever way.
func unanswered(h *netlab.Host, addr string) func() error {
	return outcome(h, plan.TCP, addr, "no answer", func(o netlab.Outcome) bool { return o.Answer != netlab.Served })
}

// reset wants the packet to reach a host where nobody listens.
func reset(h *netlab.Host, addr string) func() error {
	return outcome(h, plan.TCP, addr, "reset", func(o netlab.Outcome) bool { return o.Answer == netlab.Reset })
}
