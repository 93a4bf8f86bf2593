// Package source defines the contract between the sources of Services (an API server, manifest files, the last-known
// state on disk) and the tracker, which merges the sources' objects. The package also defines the objects that sources
// produce.
//
// The objects have Edgeway's own types, which hold only the parsed and validated fields that a service proxy reads.
// These types use a fraction of the memory that the Kubernetes types use. Package convert creates the objects.
package source

import (
	"context"
	"time"

	"edgeway/proxiers/fault"
)

// Source produces objects until Run's context is done.
type Source interface {
	// Name identifies the source in logs, metrics and status as "kube", "file", "lastknown" or "lastknown-file".
	Name() string
	// Run passes objects to the sink from one goroutine until ctx is done. If a source cannot reach its origin, Run
	// retries and Status reports the failure. Run returns an error only if retrying cannot help.
	Run(ctx context.Context, sink Sink) error
	// Status reports whether the source agrees with its origin. Any goroutine may call Status.
	Status() Status
}

// Sink receives a source's objects. The source must not modify an object after passing it to Upsert. Deleting an
// unknown object has no effect.
type Sink interface {
	Upsert(obj Object)
	Delete(key Key)
	// Synced tells the sink that the source has passed on every object that exists at its origin. Until the first call
	// to Synced, an object that the sink has not received may exist at the origin. Later calls to Synced have no
	// effect.
	Synced()
}

// Status describes whether a source agrees with its origin.
type Status struct {
	// Synced reports whether the source has passed on its first complete list.
	Synced bool `json:"synced"`
	// LastContact is the last time that the source agreed with its origin, or zero before the first contact.
	LastContact time.Time `json:"lastContact,omitzero"`
	// Fault is the source's current fault, or the zero Fault.
	Fault fault.Fault `json:"fault,omitzero"`
	// Partial reports whether Fault affects only some of the origin's objects and all other objects are current.
	Partial bool `json:"partial,omitempty"`
	// Refused reports whether the origin itself returned Fault. If so, the origin is reachable.
	Refused bool `json:"refused,omitempty"`
}

// IsFaulty reports whether the source has a fault or has not listed all objects yet.
func (s Status) IsFaulty() bool { return !s.Synced || s.Fault.Message != "" }

// State describes the status in a few words, such as "unreachable".
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
