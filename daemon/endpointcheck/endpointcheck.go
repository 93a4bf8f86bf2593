// Package endpointcheck finds the endpoints that do not answer, by TCP connections from this host. Of the endpoints of
// manifests nobody else says whether they are ready.
//
// The planner says which endpoints there are (Follow), and is told which of them are dead (Dead): that is an input of
// its next plan, as the host's addresses are, and what follows from it is decided there. An endpoint is checked once,
// however many Services have it. What is known outlasts a Run, so that a reload brings no dead endpoint back.
package endpointcheck

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Settings are what an operator decides.
type Settings struct {
	// Interval is the longest time between the starts of two checks of an endpoint. It is stretched where there are more
	// than maxRate endpoints for each of its seconds.
	Interval time.Duration
	// Timeout is how long an endpoint may take to accept a connection.
	Timeout time.Duration
	// Failures in a row make an endpoint dead, and Passes in a row bring it back.
	Failures, Passes int
	// Mark is the packet mark of the connections: an endpoint may have the address of a Service, and is itself meant.
	Mark uint32
}

// Targets are the endpoints to check: those to begin and to end with, or with All a whole new list.
type Targets struct {
	All       bool
	Add, Drop []netip.AddrPort
}

// Dead are the endpoints that do not answer, at one moment. It is immutable; nil has none.
type Dead struct {
	Faults map[netip.AddrPort]Fault
}

// Fault is what is wrong with a dead endpoint.
type Fault struct {
	// Since is when the first of the checks began that failed.
	Since time.Time
	// Err is a few words, as "connection refused".
	Err string
}

// Has reports whether the endpoint is dead.
func (d *Dead) Has(a netip.AddrPort) bool {
	if d == nil {
		return false
	}
	_, dead := d.Faults[a]
	return dead
}

// Len is how many are dead.
func (d *Dead) Len() int {
	if d == nil {
		return 0
	}
	return len(d.Faults)
}

// List gives them, sorted.
func (d *Dead) List() []netip.AddrPort {
	if d == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(d.Faults), netip.AddrPort.Compare)
}

// Difference gives the endpoints that are dead in one of both alone, in no particular order.
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
