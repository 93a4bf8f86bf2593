package lastknown

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"edgeway/daemon/source"
)

// The files, in the Store's directory.
const (
	snapshotName = "lastknown.jsonl"
	journalName  = "lastknown.journal"
)

// version is the format of both files. A program reads only its own.
const version = 1

// The values of header.Format.
const (
	snapshotFormat = "edgeway last-known state"
	journalFormat  = "edgeway last-known journal"
)

// header is the first line of both files.
type header struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Server  string    `json:"server,omitempty"`
	At      time.Time `json:"at,omitzero"` // when the API server confirmed the state
	// Base is the SHA-256 of the snapshot that a journal goes on from. A journal of another one was
	// left behind by a crash between the two renames; what it says is in the new snapshot.
	Base string `json:"base,omitempty"`
}

// footer is the last line of a snapshot.
type footer struct {
	Objects int    `json:"objects"`
	SHA256  string `json:"sha256"` // of all bytes before this line
}

// record is any other line: one of the fields is set.
type record struct {
	Service       *source.Service       `json:"service,omitempty"`
	EndpointSlice *source.EndpointSlice `json:"endpointSlice,omitempty"`
	Node          *source.Node          `json:"node,omitempty"`
	ServiceCIDR   *source.ServiceCIDR   `json:"serviceCIDR,omitempty"`
	// Deleted and At occur only in a journal.
	Deleted *reference `json:"deleted,omitempty"`
	At      time.Time  `json:"at,omitzero"`
}

type reference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (r reference) key() (source.Key, bool) {
	for k := source.KindService; k <= source.KindServiceCIDR; k++ {
		if k.String() == r.Kind {
			return source.Key{Kind: k, Namespace: r.Namespace, Name: r.Name}, true
		}
	}
	return source.Key{}, false
}

// recordOf gives the record that stores obj, or that deletes key if obj is nil.
func recordOf(key source.Key, obj source.Object) record {
	switch o := obj.(type) {
	case *source.Service:
		return record{Service: o}
	case *source.EndpointSlice:
		return record{EndpointSlice: o}
	case *source.Node:
		return record{Node: o}
	case *source.ServiceCIDR:
		return record{ServiceCIDR: o}
	}
	return record{Deleted: &reference{Kind: key.Kind.String(), Namespace: key.Namespace, Name: key.Name}}
}

// object gives the record's object, with the faults marked as its own; nil when it has none.
func (r *record) object() source.Object {
	var obj source.Object
	var faults []source.Problem
	switch {
	case r.Service != nil:
		obj, faults = r.Service, r.Service.Faults
	case r.EndpointSlice != nil:
		obj, faults = r.EndpointSlice, r.EndpointSlice.Faults
	case r.Node != nil:
		obj, faults = r.Node, r.Node.Faults
	case r.ServiceCIDR != nil:
		obj, faults = r.ServiceCIDR, r.ServiceCIDR.Faults
	default:
		return nil
	}
	for i := range faults {
		faults[i].Object = obj.Key()
	}
	return obj
}

func appendLine(b []byte, v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return b, fmt.Errorf("encode %T: %w", v, err)
	}
	return append(append(b, line...), '\n'), nil
}

// sumLen is the length of a journal line's checksum, in hexadecimal, with the space after it.
const sumLen = 9

// appendSummed appends a line of a journal.
func appendSummed(b []byte, v any) ([]byte, error) {
	start := len(b)
	b = append(b, "........ "...)
	b, err := appendLine(b, v)
	if err != nil {
		return b[:start], err
	}
	copy(b[start:], fmt.Sprintf("%08x", crc(b[start+sumLen:len(b)-1])))
	return b, nil
}

var errChecksum = errors.New("a line does not have its checksum")

// cutSum gives a journal line's JSON.
func cutSum(line []byte) ([]byte, error) {
	if len(line) <= sumLen || line[sumLen-1] != ' ' {
		return nil, errChecksum
	}
	sum, err := strconv.ParseUint(string(line[:sumLen-1]), 16, 32)
	if err != nil || uint32(sum) != crc(line[sumLen:]) {
		return nil, errChecksum
	}
	return line[sumLen:], nil
}

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
