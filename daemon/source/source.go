// Package source defines the contract between the sources of Services (an API server, manifest files, the last-known
// state on disk) and the tracker that merges them. The package also defines the objects that sources produce.
//
// The objects are Edgeway's own types. These types hold only the fields that a service proxy reads, parsed and
// validated. Edgeway's types take a fraction of the memory of the Kubernetes types. Package convert creates the
// objects.
package source

import (
	"context"
	"time"

	"edgeway/proxiers/fault"
)

// Source produces objects until its context ends.
type Source interface {
	// Name identifies the source in logs, metrics and status: "kube", "file", "lastknown", "lastknown-file".
	Name() string
	// Run passes objects to the sink, from one goroutine, until ctx ends. If a source cannot reach its origin, Run
	// keeps trying and Status reports the failure. Run returns an error only if retrying cannot help.
	Run(ctx context.Context, sink Sink) error
	// Status returns the current status. Status may be called from any goroutine.
	Status() Status
}

// Sink receives the objects of a source. An object must not change after it was passed to Upsert. Deleting an unknown
// object does nothing.
type Sink interface {
	Upsert(obj Object)
	Delete(key Key)
	// Synced tells the sink that the source has passed on every object that exists at its origin. Until the source
	// calls Synced, a missing object has not necessarily been deleted. Further calls do nothing.
	Synced()
}

// Status describes whether the objects of a source agree with its origin.
type Status struct {
	// Synced reports whether the source has passed on its first complete list.
	Synced bool `json:"synced"`
	// LastContact is the last time when the source agreed with its origin, or zero if there has been no contact.
	LastContact time.Time `json:"lastContact,omitzero"`
	// Fault is the current fault of the source, or the zero Fault.
	Fault fault.Fault `json:"fault,omitzero"`
	// Partial reports whether Fault concerns only some objects of the origin. All other objects are then current.
	Partial bool `json:"partial,omitempty"`
	// Refused reports whether Fault is a response from the origin, so that the origin is reachable.
	Refused bool `json:"refused,omitempty"`
}

// Faulty reports whether the source has a fault, or has not listed all objects.
func (s Status) Faulty() bool { return !s.Synced || s.Fault.Message != "" }

// State describes the status in a few words, as in "unreachable".
func (s Status) State() string {
	switch {
	case s.Partial:
		return "partly unreadable"
	case s.Refused:
		return "rejecting requests"
	case s.Fault.Message != "":
		return "unreachable"
	case s.Synced:
		return "synced"
	}
	return "still listing objects"
}
