package lastknown

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
)

// state is what the files hold.
type state struct {
	server  string
	at      time.Time
	objects []source.Object // sorted by key
	invalid int             // objects that were left out
	torn    int             // bytes of the journal that were left out
}

// readState reads both files. The error wraps os.ErrNotExist when there is no snapshot; any other
// error says that the snapshot can not be trusted.
func readState(dir string) (*state, error) {
	snapshot, err := os.ReadFile(filepath.Join(dir, snapshotName))
	if err != nil {
		return nil, fmt.Errorf("last-known state: %w", err)
	}
	journal, err := os.ReadFile(filepath.Join(dir, journalName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("last-known state: %w", err)
	}
	st, err := parseState(snapshot, journal)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, snapshotName), err)
	}
	return st, nil
}

// parseState is readState on the contents of the files. It never gives an object that a conversion
// could not have made.
func parseState(snapshot, journal []byte) (*state, error) {
	b := builder{objects: make(map[source.Key]source.Object)}
	sum, err := b.snapshot(snapshot)
	if err != nil {
		return nil, err
	}
	b.journal(journal, sum)
	b.state.objects = make([]source.Object, 0, len(b.objects))
	for _, obj := range b.objects {
		b.state.objects = append(b.state.objects, obj)
	}
	slices.SortFunc(b.state.objects, func(x, y source.Object) int { return x.Key().Compare(y.Key()) })
	return &b.state, nil
}

type builder struct {
	state
	objects   map[source.Key]source.Object
	converter convert.Converter
}

// snapshot checks the whole before it decodes any part, and gives the checksum.
func (b *builder) snapshot(data []byte) (sum string, err error) {
	body, ok := bytes.CutSuffix(data, []byte("\n"))
	if !ok {
		return "", errors.New("the end is missing")
	}
	end := bytes.LastIndexByte(body, '\n') + 1
	last, body := body[end:], body[:end]
	hash := sha256.Sum256(body)
	sum = hex.EncodeToString(hash[:])
	want, err := json.Marshal(footer{Objects: bytes.Count(body, []byte("\n")) - 1, SHA256: sum})
	if err != nil || !bytes.Equal(last, want) {
		return "", errors.New("the last line is not the number of objects and the SHA-256 of the content")
	}
	first, body, _ := bytes.Cut(body, []byte("\n"))
	head, err := parseHeader(first, snapshotFormat)
	if err != nil {
		return "", err
	}
	b.server, b.at = head.Server, head.At
	for line := range bytes.Lines(body) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return "", fmt.Errorf("decode line: %w", err)
		}
		b.put(&r)
	}
	return sum, nil
}

func parseHeader(line []byte, format string) (h header, err error) {
	if err := json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("decode header: %w", err)
	}
	if h.Format != format {
		return h, fmt.Errorf("the format is %.64q, not %q", h.Format, format)
	}
	if h.Version != version {
		return h, fmt.Errorf("the version of the format is %d, not %d", h.Version, version)
	}
	return h, nil
}

// journal applies the changes up to the first damaged line.
func (b *builder) journal(data []byte, base string) {
	left := data
	for first := true; len(left) > 0; first = false {
		line, rest, whole := bytes.Cut(left, []byte("\n"))
		text, err := cutSum(line)
		if err != nil || !whole {
			break
		}
		if first {
			if h, err := parseHeader(text, journalFormat); err != nil || h.Base != base {
				return
			}
		} else {
			var r record
			if err := json.Unmarshal(text, &r); err != nil {
				break
			}
			b.apply(&r)
		}
		left = rest
	}
	b.torn = len(left)
}

func (b *builder) apply(r *record) {
	if !r.At.IsZero() {
		b.at = r.At
	}
	if r.Deleted != nil {
		if key, ok := r.Deleted.key(); ok {
			delete(b.objects, key)
		}
		return
	}
	b.put(r)
}

func (b *builder) put(r *record) {
	obj := r.object()
	if obj == nil {
		return
	}
	if err := convert.Check(obj); err != nil {
		b.invalid++
		return
	}
	b.converter.Share(obj)
	b.objects[obj.Key()] = obj
}
