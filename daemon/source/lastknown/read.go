package lastknown

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"edgeway/daemon/files"
	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/contain"
)

type state struct {
	cluster  Cluster
	at       time.Time       // the time when the source last confirmed the state
	objects  []source.Object // sorted by key
	holdings []source.Holding
	invalid  int
	panicked error // the panic that an object caused
}

// readState reads the last-known state from a directory. If there is no state, the error wraps os.ErrNotExist. Any
// other error means that the snapshot is unusable.
func readState(dir string, before func(source.Key)) (*state, error) {
	path := filepath.Join(dir, snapshotName)
	file, info, err := files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("last-known state: %w", err)
	}
	defer file.Close()
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: the file size of %d MiB exceeds the maximum of %d MiB",
			path, info.Size()>>20, maxFile>>20)
	}
	d := newDecoder(before)
	if err := d.readSnapshot(file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// Store.saveAge sets the snapshot's modification time to the time when the source last confirmed its objects. A
	// modification time in the future means that the host's clock was wrong.
	now, at := time.Now(), d.state.at
	if t := info.ModTime().UTC().Truncate(time.Second); !t.After(now) && (t.After(at) || at.After(now)) {
		d.state.at = t
	}
	return d.result(), nil
}

// decoder collects the objects from a snapshot, and rejects objects that fail convert.Validate.
type decoder struct {
	state     state
	objects   map[source.Key]source.Object
	converter convert.Converter
	before    func(source.Key)
}

func newDecoder(before func(source.Key)) *decoder {
	return &decoder{objects: map[source.Key]source.Object{}, before: before}
}

func (d *decoder) result() *state {
	d.state.objects = slices.SortedFunc(maps.Values(d.objects),
		func(a, b source.Object) int { return a.Key().Compare(b.Key()) })
	return &d.state
}

var (
	errFooter = errors.New("the last line does not contain the number of objects and the SHA-256 of the content")
	errNewer  = errors.New("the state is from a newer version of Edgeway, and remains on disk until this version " +
		"saves its own state")
)

// footerStart is a prefix that only the footer of a snapshot has.
var footerStart = []byte(`{"objects":`)

// readSnapshot decodes all lines of a snapshot and verifies the checksum in the footer.
func (d *decoder) readSnapshot(r io.Reader) error {
	lines := newLineScanner(r)
	if !lines.Scan() {
		return scanError(lines, errFooter)
	}
	head, err := parseHeader(lines.Bytes())
	if err != nil {
		return err
	}
	d.state.cluster, d.state.at, d.state.holdings = head.Cluster, head.At, head.Held
	hash := sha256.New()
	for n := 0; ; n++ {
		hash.Write(lines.Bytes())
		hash.Write([]byte("\n"))
		if !lines.Scan() {
			return scanError(lines, errFooter)
		}
		if bytes.HasPrefix(lines.Bytes(), footerStart) {
			want, err := json.Marshal(footer{Objects: n, SHA256: hex.EncodeToString(hash.Sum(nil))})
			if err != nil || !bytes.Equal(lines.Bytes(), want) || lines.Scan() {
				return errFooter
			}
			return scanError(lines, nil)
		}
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("decode line: %w", err)
		}
		d.add(&r)
	}
}

func parseHeader(line []byte) (h header, err error) {
	var v struct { // later versions may change all other fields
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return h, fmt.Errorf("decode header: %w", err)
	}
	switch {
	case v.Format != snapshotFormat:
		return h, fmt.Errorf("the format is %.64q, not %q", v.Format, snapshotFormat)
	case v.Version > version:
		return h, errNewer
	case v.Version != version:
		return h, fmt.Errorf("the format version is %d, not %d", v.Version, version)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("decode header: %w", err)
	}
	return h, nil
}

func (d *decoder) add(r *record) {
	obj := r.object()
	if obj == nil {
		return
	}
	key := obj.Key()
	faults := obj.Problems()
	for i := range faults {
		faults[i].Object = key // a Key loses its kind and its namespace in JSON
	}
	err := contain.Call(func() error {
		if d.before != nil {
			d.before(key)
		}
		d.converter.Share(obj)
		return convert.Validate(obj)
	})
	switch {
	case contain.IsPanic(err):
		d.state.panicked = err
		if obj = source.NewReplacement(key, "cannot be read: "+err.Error()); obj != nil {
			d.objects[key] = obj
		}
	case err != nil:
		d.state.invalid++
	default:
		d.objects[key] = obj
	}
}
