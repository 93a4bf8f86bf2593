package e2e

import (
	"fmt"
	"net/netip"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// dialTimeout is the time after which a packet without a response counts as dropped. The timeout is less than a second,
// because the kernel retransmits a dropped SYN after a second, and the retransmission would hide the drop.
const dialTimeout = 950 * time.Millisecond

// replyTimeout is the timeout for the reply over an established TCP connection. The timeout allows for servers that
// have to wait for a CPU on a busy machine.
const replyTimeout = 10 * time.Second

// shortTimeout is the timeout of a connection attempt in tests that measure time. The timeout is short, so a dropped
// packet adds little to the measured time.
const shortTimeout = 100 * time.Millisecond

func flow(h *netlab.Host, protocol plan.Protocol, addr string) netlab.Flow {
	to := netip.MustParseAddrPort(addr)
	return netlab.Flow{Protocol: protocol, From: h.Addr(to.Addr()), To: to, Wait: dialTimeout, ReplyWait: replyTimeout}
}

// expectOutcome returns a function that opens a connection from h to addr. The function returns an error unless the
// predicate right accepts the connection's outcome.
func expectOutcome(
	h *netlab.Host, protocol plan.Protocol, addr, want string, right func(netlab.Outcome) bool,
) func() error {
	f := flow(h, protocol, addr)
	return func() error {
		if got := h.Connect(f); !right(got) {
			return fmt.Errorf("%s from %s to %s: %s, want %s", protocol, h.Name, addr, got, want)
		}
		return nil
	}
}

// answersSoon is like answers, but has a shorter timeout for tests that measure time.
func answersSoon(h *netlab.Host, addr, name string) func() error {
	f := flow(h, plan.TCP, addr)
	f.Wait, f.ReplyWait = shortTimeout, 0
	return func() error {
		if got := h.Connect(f); got.Server != name {
			return fmt.Errorf("TCP from %s to %s: %s, want served by %s", h.Name, addr, got, name)
		}
		return nil
	}
}

// answers requires a TCP response from the endpoint with the given name. answersUDP requires a UDP response.
func answers(h *netlab.Host, addr, name string) func() error {
	return expectOutcome(h, plan.TCP, addr, "served by "+name, func(o netlab.Outcome) bool { return o.Server == name })
}

func answersUDP(h *netlab.Host, addr, name string) func() error {
	return expectOutcome(h, plan.UDP, addr, "served by "+name, func(o netlab.Outcome) bool { return o.Server == name })
}

func isSilent(h *netlab.Host, addr string) func() error {
	return expectOutcome(h, plan.TCP, addr, "silence", func(o netlab.Outcome) bool { return o.Result == netlab.Silent })
}

// isRefused requires the connection to fail with an ICMP "port unreachable" error.
func isRefused(h *netlab.Host, addr string) func() error {
	return expectOutcome(h, plan.TCP, addr, "refusal",
		func(o netlab.Outcome) bool { return o.Result == netlab.Refused })
}

func isUnanswered(h *netlab.Host, addr string) func() error {
	return expectOutcome(h, plan.TCP, addr, "no answer",
		func(o netlab.Outcome) bool { return o.Result != netlab.Served })
}

// isReset requires the connection to fail with a TCP reset, as on a port without a listener.
func isReset(h *netlab.Host, addr string) func() error {
	return expectOutcome(h, plan.TCP, addr, "reset", func(o netlab.Outcome) bool { return o.Result == netlab.Reset })
}
