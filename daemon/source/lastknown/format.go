package lastknown

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"edgeway/daemon/source"
)

const snapshotName = "lastknown.jsonl"

// version is the only version of the snapshot format that Edgeway reads.
const version = 1

const snapshotFormat = "edgeway last-known state"

// header is the first line of a snapshot. Every version of the format has the fields Format and Version.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Cluster
	At   time.Time        `json:"at,omitzero"` // the time when the source confirmed the state
	Held []source.Holding `json:"held,omitempty"`
}

type footer struct {
	Objects int    `json:"objects"`
	SHA256  string `json:"sha256"` // the checksum of all bytes before this line
}

// record is a snapshot line between the header and the footer. Exactly one field of a record is not nil.
type record struct {
	Service       *source.Service       `json:"service,omitempty"`
	EndpointSlice *source.EndpointSlice `json:"endpointSlice,omitempty"`
	Node          *source.Node          `json:"node,omitempty"`
	ServiceCIDR   *source.ServiceCIDR   `json:"serviceCIDR,omitempty"`
	APIServer     *source.APIServer     `json:"apiServer,omitempty"`
	Manifest      *source.Manifest      `json:"manifest,omitempty"`
}

// recordOf returns the record for an object. A Document has no record, because it describes a fault, not state.
func recordOf(obj source.Object) (r record, ok bool) {
	switch o := obj.(type) {
	case *source.Service:
		r.Service = o
	case *source.EndpointSlice:
		r.EndpointSlice = o
	case *source.Node:
		r.Node = o
	case *source.ServiceCIDR:
		r.ServiceCIDR = o
	case *source.APIServer:
		r.APIServer = o
	case *source.Manifest:
		r.Manifest = o
	default:
		return r, false
	}
	return r, true
}

// object returns the record's object, or nil if the record is empty.
func (r *record) object() source.Object {
	switch {
	case r.Service != nil:
		return r.Service
	case r.EndpointSlice != nil:
		return r.EndpointSlice
	case r.Node != nil:
		return r.Node
	case r.ServiceCIDR != nil:
		return r.ServiceCIDR
	case r.APIServer != nil:
		return r.APIServer
	case r.Manifest != nil:
		return r.Manifest
	}
	return nil
}

// maxFile and maxLine are the maximum size and line length of a snapshot, in bytes. A snapshot of 30,000 Services with
// 100 endpoints each, on Nodes with 45-letter names, is 370 MiB in size. The line for an EndpointSlice with 1,000
// endpoints is up to 4 MiB long.
const (
	maxFile = 512 << 20
	maxLine = 8 << 20
)

// newLineScanner returns a line scanner that uses a limited amount of memory.
func newLineScanner(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine+1)
	return lines
}

// scanError returns the error that stopped the scanner. If the scanner reached the end of the file, scanError returns
// its second argument.
func scanError(lines *bufio.Scanner, otherwise error) error {
	switch err := lines.Err(); {
	case err == nil:
		return otherwise
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line is longer than %d MiB", maxLine>>20)
	default:
		return err
	}
}
