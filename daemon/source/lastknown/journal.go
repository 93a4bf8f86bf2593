package lastknown

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"io"
	"strconv"
	"time"

	"edgeway/daemon/source"
)

// Edgeway before 0.1 wrote changes to a journal in addition to the snapshot. After an upgrade, Edgeway reads the
// journal up to the first damaged line. When Edgeway writes the first snapshot, Edgeway removes the journal.
const (
	journalName   = "lastknown.journal"
	journalFormat = "edgeway last-known journal"
)

// base is the field of a journal's header that identifies the preceding snapshot by its SHA-256.
type base struct {
	SHA256 string `json:"base"`
}

// change is a line of a journal: a changed object, a deleted object, or the time when the source confirmed the
// preceding lines.
type change struct {
	record
	Deleted *struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"deleted"`
	At   time.Time         `json:"at"`
	Held *[]source.Holding `json:"held"` // nil if the holdings are unchanged
}

// journal applies the changes of a journal if the journal belongs to the snapshot with the checksum sum.
func (d *decoder) journal(r io.Reader, sum string) {
	lines := newLines(r)
	for first := true; lines.Scan(); first = false {
		text, ok := cutSum(lines.Bytes())
		if first && ok {
			var b base
			if _, err := parseHeader(text, journalFormat); err != nil || json.Unmarshal(text, &b) != nil ||
				b.SHA256 != sum {
				return
			}
			continue
		}
		var c change
		if !ok || json.Unmarshal(text, &c) != nil {
			d.state.torn = true
			return
		}
		d.apply(&c)
	}
	d.state.torn = lines.Err() != nil
}

func (d *decoder) apply(c *change) {
	if !c.At.IsZero() {
		d.state.at = c.At
	}
	if c.Held != nil {
		d.state.held = *c.Held
	}
	if c.Deleted == nil {
		d.add(&c.record)
		return
	}
	for kind := source.KindService; kind <= source.KindManifest; kind++ {
		if kind.String() == c.Deleted.Kind {
			delete(d.objects, source.Key{Kind: kind, Namespace: c.Deleted.Namespace, Name: c.Deleted.Name})
		}
	}
}

// cutSum removes the checksum from a line. ok is false if the checksum is wrong.
func cutSum(line []byte) (text []byte, ok bool) {
	prefix, text, ok := bytes.Cut(line, []byte(" "))
	want, err := strconv.ParseUint(string(prefix), 16, 32)
	return text, ok && err == nil && uint32(want) == crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
}
