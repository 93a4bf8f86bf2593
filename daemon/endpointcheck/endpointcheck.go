// Package endpointcheck finds the endpoints that do not answer, by TCP connections from this host. No one else reports
// whether the endpoints of manifests are ready.
//
// The planner says which endpoints there are (Follow) and reads which of them are dead (Dead). The dead are an input of
// its next plan, like the host's addresses, and the planner decides what follows. An endpoint is checked once, however
// many Services have it. Verdicts outlast a Run, so that a reload brings no dead endpoint back.
package endpointcheck

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"edgeway/proxiers/fault"
)

// Settings are the operator's.
type Settings struct {
	// Interval is the longest time between the starts of two checks of an endpoint, unless maxRate makes it longer.
	Interval time.Duration
	// Failures in a row make an endpoint dead, and passes in a row bring it back.
	Failures int
	// Mark is the packet mark of the connections. With it, an endpoint that has the address of a Service is reached
	// itself.
	Mark uint32
}

// passes is the number of answers in a row that bring an endpoint back: one that flaps stays out.
const passes = 2

// maxTimeout bounds the time that an endpoint has to accept a connection. A TCP SYN is repeated after 1 s and 3 s.
const maxTimeout = 5 * time.Second

// timeout returns the time that an endpoint has to accept a connection. It grows with the interval, for links that take
// seconds for an answer.
func (s Settings) timeout() time.Duration { return min(s.Interval/2, maxTimeout) }

// Targets change the endpoints to check: Add and Drop, or Add alone as the whole new list if All is set.
type Targets struct {
	All       bool
	Add, Drop []netip.AddrPort
}

// Dead holds the endpoints that do not answer. It is immutable. A nil *Dead is empty.
type Dead struct {
	// Faults has a short message, for example "connection refused", and the start of the first check that failed.
	Faults map[netip.AddrPort]fault.Fault
}

// Has reports whether the endpoint is dead.
func (d *Dead) Has(a netip.AddrPort) bool {
	if d == nil {
		return false
	}
	_, dead := d.Faults[a]
	return dead
}

// Len returns the number of dead endpoints.
func (d *Dead) Len() int {
	if d == nil {
		return 0
	}
	return len(d.Faults)
}

// List returns the dead endpoints, sorted.
func (d *Dead) List() []netip.AddrPort {
	if d == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(d.Faults), netip.AddrPort.Compare)
}

// Difference returns the endpoints that are dead in a or b, but not in both, in no particular order.
func Difference(a, b *Dead) (out []netip.AddrPort) {
	if a == b {
		return nil
	}
	for _, of := range [][2]*Dead{{a, b}, {b, a}} {
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
