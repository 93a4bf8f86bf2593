// Package endpointcheck opens TCP connections from this host to detect endpoints that do not respond. Endpoints in
// manifests need checks, because no other component reports whether these endpoints are ready.
//
// The planner sets the endpoints to check (UpdateTargets) and reads the dead endpoints (Checker.DeadEndpoints). Like
// the host's addresses, the dead endpoints are an input to the next plan. The planner decides whether to exclude a dead
// endpoint. The Checker checks an endpoint only once per interval, even if many Services use it. Verdicts outlive Run,
// so a reload does not bring dead endpoints back into use.
package endpointcheck

import (
	"net/netip"
	"time"

	"edgeway/proxiers/fault"
)

// Settings configures a Checker.
type Settings struct {
	// Interval is the longest time between the starts of two consecutive checks of an endpoint, unless maxRate requires
	// a longer time.
	Interval time.Duration
	// Failures is the number of consecutive failures after which an endpoint is dead.
	Failures int
	// Mark is the packet mark of the checks' connections. Marked connections bypass Edgeway's rules, so a check reaches
	// the endpoint itself even if a Service has the same address.
	Mark uint32
}

// minPasses is the number of consecutive successful checks after which Edgeway uses a dead endpoint again. A flapping
// endpoint therefore stays excluded.
const minPasses = 2

// maxTimeout is the longest time that a check waits for an endpoint to accept a connection. The kernel retransmits a
// TCP SYN after 1 s and 3 s.
const maxTimeout = 5 * time.Second

// timeout returns the time that a check waits for an endpoint to accept a connection. The timeout grows with the
// interval, so that a long interval suits links on which a response takes seconds.
func (s Settings) timeout() time.Duration { return min(s.Interval/2, maxTimeout) }

// Targets describes a change to the set of endpoints to check. If All is set, Add is the complete new list of
// endpoints.
type Targets struct {
	All       bool
	Add, Drop []netip.AddrPort
}

// DeadEndpoints holds the endpoints that do not respond, and is immutable. A nil *DeadEndpoints holds no endpoints.
type DeadEndpoints struct {
	// Faults maps each endpoint to a short message, such as "connection refused", and the start time of the first
	// failed check.
	Faults map[netip.AddrPort]fault.Fault
}

// Has reports whether the endpoint is dead.
func (d *DeadEndpoints) Has(a netip.AddrPort) bool {
	if d == nil {
		return false
	}
	_, dead := d.Faults[a]
	return dead
}

// Len returns the number of dead endpoints.
func (d *DeadEndpoints) Len() int {
	if d == nil {
		return 0
	}
	return len(d.Faults)
}

// Difference returns the endpoints that are dead in exactly one of a and b, in no particular order.
func Difference(a, b *DeadEndpoints) (out []netip.AddrPort) {
	if a == b {
		return nil
	}
	for _, of := range [][2]*DeadEndpoints{{a, b}, {b, a}} {
		if of[0] == nil {
			continue
		}
		for at := range of[0].Faults {
			if !of[1].Has(at) {
				out = append(out, at)
			}
		}
	}
	return out
}
