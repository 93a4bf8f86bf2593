package lastknown

import (
	"bytes"
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

// header is the first line of both files. Format and Version are its beginning in every version.
type header struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Server  string    `json:"server,omitempty"`
	At      time.Time `json:"at,omitzero"` // when the source confirmed the state
	// Held is what Commit was told, in a snapshot.
	Held []source.Holding `json:"held,omitempty"`
	// Base is the SHA-256 of the snapshot that a journal goes on from. A journal of another one was
	// left behind by a crash between the two renames; what it says is in the new snapshot.
	Base string `json:"base,omitempty"`
}

// footer is the last line of a snapshot.
type footer struct {
	Objects int    `json:"objects"`
	SHA256  string `json:"sha256"` // of all bytes before this line
}

// record is any other line: one of the fields is set, or At and Held are.
type record struct {
	Service       *source.Service       `json:"service,omitempty"`
	EndpointSlice *source.EndpointSlice `json:"endpointSlice,omitempty"`
	Node          *source.Node          `json:"node,omitempty"`
	ServiceCIDR   *source.ServiceCIDR   `json:"serviceCIDR,omitempty"`
	APIServer     *source.APIServer     `json:"apiServer,omitempty"`
	Manifest      *source.Manifest      `json:"manifest,omitempty"`
	// The rest occurs only in a journal. Held is there when it has changed.
	Deleted *reference        `json:"deleted,omitempty"`
	At      time.Time         `json:"at,omitzero"`
	Held    *[]source.Holding `json:"held,omitempty"`
}

type reference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (r reference) key() (source.Key, bool) {
	for k := source.KindService; k <= source.KindManifest; k++ {
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
	case *source.APIServer:
		return record{APIServer: o}
	case *source.Manifest:
		return record{Manifest: o}
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
	case r.APIServer != nil:
		obj = r.APIServer
	case r.Manifest != nil:
		obj = r.Manifest
	default:
		return nil
	}
	for i := range faults {
		faults[i].Object = obj.Key()
	}
	return obj
}

// The limits of what is read, and so of what is written. State of 30,000 Services with 100 endpoints each, on
// nodes with names of 45 letters, has 370 MiB; the line of an EndpointSlice of 1,000 endpoints has up to 4 MiB.
const (
	maxFile = 512 << 20
	maxLine = 8 << 20
)

var errLine = fmt.Errorf("a line is longer than %d MiB", maxLine>>20)

// appendLine leaves the buffer as it was if it fails.
func appendLine(b *bytes.Buffer, v any) error {
	start := b.Len()
	err := json.NewEncoder(b).Encode(v) // it ends the line
	if err == nil && b.Len()-start-1+sumLen > maxLine {
		err = errLine
	}
	if err != nil {
		b.Truncate(start)
		return fmt.Errorf("encode %T: %w", v, err)
	}
	return nil
}

// sumLen is the length of a journal line's checksum, in hexadecimal, with the space after it.
const sumLen = 9

// appendSummed appends a line of a journal.
func appendSummed(b *bytes.Buffer, v any) error {
	start := b.Len()
	b.WriteString("........ ")
	if err := appendLine(b, v); err != nil {
		b.Truncate(start)
		return err
	}
	line := b.Bytes()[start:]
	copy(line, fmt.Sprintf("%08x", crc(line[sumLen:len(line)-1])))
	return nil
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
