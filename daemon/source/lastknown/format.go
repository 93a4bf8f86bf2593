package lastknown

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

const snapshotName = "lastknown.jsonl"

// Edgeway reads no other version of the snapshot format.
const version = 1

const snapshotFormat = "edgeway last-known state"

// header is the first line of a snapshot. In every version of the format, the line starts with Format and Version.
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

// record is a line of a snapshot between the header and the footer. Exactly one field is set.
type record struct {
	Service       *source.Service       `json:"service,omitempty"`
	EndpointSlice *source.EndpointSlice `json:"endpointSlice,omitempty"`
	Node          *source.Node          `json:"node,omitempty"`
	ServiceCIDR   *source.ServiceCIDR   `json:"serviceCIDR,omitempty"`
	APIServer     *source.APIServer     `json:"apiServer,omitempty"`
	Manifest      *source.Manifest      `json:"manifest,omitempty"`
}

// recordOf returns the record of an object. A Document has no record, because a Document is a fault and not state.
func recordOf(obj source.Object) (r record, ok bool) {
	switch o := obj.(type) {
	case *source.Service:
		written := *o
		written.Faults = bare(o.Faults)
		r.Service = &written
	case *source.EndpointSlice:
		written := *o
		written.Faults = bare(o.Faults)
		r.EndpointSlice = &written
	case *source.Node:
		written := *o
		written.Faults = bare(o.Faults)
		r.Node = &written
	case *source.ServiceCIDR:
		written := *o
		written.Faults = bare(o.Faults)
		r.ServiceCIDR = &written
	case *source.APIServer:
		r.APIServer = o
	case *source.Manifest:
		r.Manifest = o
	default:
		return r, false
	}
	return r, true
}

// bare returns copies of faults without the name of the object, because the record already contains the object. Earlier
// versions of Edgeway cannot read a fault that names an object, and would discard the whole state.
func bare(faults []fault.Fault) (out []fault.Fault) {
	for _, f := range faults {
		out = append(out, fault.Fault{Field: f.Field, Message: f.Message})
	}
	return out
}

// object returns the object of the record, or nil if the record is empty. In the object's faults, object restores the
// name that bare removed.
func (r *record) object() source.Object {
	var obj source.Object
	var faults []fault.Fault
	switch {
	case r.Service != nil:
		obj, faults = r.Service, r.Service.Faults
	case r.EndpointSlice != nil:
		obj, faults = r.EndpointSlice, r.EndpointSlice.Faults
	case r.Node != nil:
		obj, faults = r.Node, r.Node.Faults
	case r.ServiceCIDR != nil:
		obj, faults = r.ServiceCIDR, r.ServiceCIDR.Faults
	case r.APIServer != nil:
		obj = r.APIServer
	case r.Manifest != nil:
		obj = r.Manifest
	default:
		return nil
	}
	for i, f := range faults {
		faults[i] = obj.Key().Fault(f.Field, "%s", f.Message)
	}
	return obj
}

// maxFile and maxLine limit the sizes for reading and writing a snapshot. The state of 30,000 Services with 100
// endpoints each, on Nodes with names of 45 letters, takes 370 MiB. The line of an EndpointSlice with 1,000 endpoints
// takes up to 4 MiB.
const (
	maxFile = 512 << 20
	maxLine = 8 << 20
)

// newLines returns a line scanner with bounded memory.
func newLines(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine+1)
	return lines
}

// ended returns the error that stopped the scanner, or else the error otherwise if the file ended.
func ended(lines *bufio.Scanner, otherwise error) error {
	switch err := lines.Err(); {
	case err == nil:
		return otherwise
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line is longer than %d MiB", maxLine>>20)
	default:
		return err
	}
}
