// Package source defines the contract between the sources of Services (an API server, manifest files, the last-known
// state on disk) and the tracker that merges them. The package also defines the objects that sources produce.
//
// The objects are Edgeway's own types. These types hold only the fields that a service proxy reads, already parsed and
// validated, and take a fraction of the memory of Kubernetes' types. Package convert creates the objects.
package source

import (
	"context"
	"time"
)

// Source produces objects until its context ends.
type Source interface {
	// Name identifies the source in logs, metrics and status: "kube", "file", "lastknown", "lastknown-file".
	Name() string
	// Run passes objects to the sink, from one goroutine, until ctx ends. A source that cannot reach its origin keeps
	// trying and reports the failure in Status. Run returns an error only if retrying cannot help.
	Run(ctx context.Context, sink Sink) error
	// Status returns the current status. Status may be called from any goroutine.
	Status() Status
}

// Sink receives the objects of a source. An object must not change after it was passed to Upsert. Deleting an unknown
// object does nothing.
type Sink interface {
	Upsert(obj Object)
	Delete(key Key)
	// Synced reports that the source has passed on every object that exists at its origin. Until Synced is called, a
	// missing object has not necessarily been deleted. Further calls of Synced do nothing.
	Synced()
}

// Status describes whether a source agrees with its origin.
type Status struct {
	// Synced reports whether the source has passed on its first complete list.
	Synced bool `json:"synced"`
	// LastContact is the last time the source agreed with its origin, or zero if there has been no contact.
	LastContact time.Time `json:"lastContact,omitzero"`
	// Err describes the current fault of the source, or is "" if there is none.
	Err string `json:"error,omitempty"`
	// Partial reports whether Err concerns only a part of the origin and all other objects are current.
	Partial bool `json:"partial,omitempty"`
	// Refused reports whether the origin itself answered with Err, and is therefore reachable.
	Refused bool `json:"refused,omitempty"`
	// Fix is the remedy for Err, or "" if Err already contains the remedy.
	Fix string `json:"fix,omitempty"`
}
