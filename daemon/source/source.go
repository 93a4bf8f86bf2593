// Package source says where Services come from: the contract between the sources (an API server,
// manifest files, the last-known state on disk) and the tracker that merges them, and the objects
// that pass between them.
//
// The objects are Edgeway's own: only the fields that a service proxy reads, already parsed and
// validated, a fraction of the size of Kubernetes' types. Package convert makes them.
package source

import (
	"context"
	"time"
)

// Source produces objects until its context ends.
type Source interface {
	// Name identifies the source in logs, metrics and status: "kube", "file", "lastknown", "lastknown-file".
	Name() string
	// Run feeds the sink, from one goroutine, until ctx ends. A source that cannot reach its origin
	// keeps trying and says so in Status; it returns an error only for what trying again cannot fix.
	Run(ctx context.Context, sink Sink) error
	// Status may be called at any time from any goroutine.
	Status() Status
}

// Sink takes what a source sees. Objects are immutable once handed over. Deleting what was never
// there does nothing.
type Sink interface {
	Upsert(obj Object)
	Delete(key Key)
	// Synced says that all that existed at the origin has been handed over once. Only then does
	// absence mean anything. Further calls do nothing.
	Synced()
}

// Status is how well a source agrees with its origin.
type Status struct {
	// Synced is set once the first complete list was handed over.
	Synced bool `json:"synced"`
	// LastContact is when the source last knew that it agreed with its origin; zero: never.
	LastContact time.Time `json:"lastContact,omitzero"`
	// Err is the fault that the source is struggling with now, in words; empty: none.
	Err string `json:"error,omitempty"`
	// Partial says that Err concerns a part of the origin: what else it has is current.
	Partial bool `json:"partial,omitempty"`
	// Refused says that Err is what the origin answers: it is reached.
	Refused bool `json:"refused,omitempty"`
	// Fix is what to do about Err; empty: Err says it.
	Fix string `json:"fix,omitempty"`
}
