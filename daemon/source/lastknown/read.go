package lastknown

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/regular"
	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/contain"
)

// state is what the files hold.
type state struct {
	server  string
	at      time.Time
	objects []source.Object // sorted by key
	invalid int             // objects that were left out
	torn    int64           // bytes of the journal that were left out
	// panicked is the panic of an object that is refused.
	panicked error
	held     []source.Holding
}

// readState reads both files. The error wraps os.ErrNotExist when there is no snapshot; any other
// error says that the snapshot cannot be trusted.
func readState(dir string, before func(source.Key)) (*state, error) {
	snapshot, closeSnapshot, err := open(filepath.Join(dir, snapshotName))
	if err != nil {
		return nil, fmt.Errorf("last-known state: %w", err)
	}
	defer closeSnapshot()
	journal, closeJournal, err := open(filepath.Join(dir, journalName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		journal = io.NewSectionReader(strings.NewReader(""), 0, 0)
	case err != nil:
		return nil, fmt.Errorf("last-known state: %w", err)
	default:
		defer closeJournal()
	}
	st, err := parseState(snapshot, journal, before)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, snapshotName), err)
	}
	return st, nil
}

func open(path string) (content *io.SectionReader, done func(), err error) {
	file, info, err := regular.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return io.NewSectionReader(file, 0, info.Size()), func() { _ = file.Close() }, nil
}

// parseState is readState on the contents of the files. It never gives an object that a conversion
// could not have made.
func parseState(snapshot, journal *io.SectionReader, before func(source.Key)) (*state, error) {
	b := builder{before: before, later: make(map[source.Key]source.Object)}
	b.scanner.converter = &b.converter
	sum, err := b.snapshot(snapshot)
	if err != nil {
		return nil, err
	}
	b.journal(journal, sum)
	b.settle()
	return &b.state, nil
}

// builder collects the objects of a snapshot in its order, as they are sorted there.
type builder struct {
	state
	last source.Key // of the objects
	// later has what is to take the place of objects, or to be added; nil: to be deleted.
	later     map[source.Key]source.Object
	converter convert.Converter
	scanner   scanner
	before    func(source.Key) // Options.Before
}

// settle applies what came later.
func (b *builder) settle() {
	if len(b.later) == 0 {
		return
	}
	b.objects = slices.DeleteFunc(b.objects, func(obj source.Object) bool {
		_, replaced := b.later[obj.Key()]
		return replaced
	})
	for _, obj := range b.later {
		if obj != nil {
			b.objects = append(b.objects, obj)
		}
	}
	slices.SortFunc(b.objects, func(x, y source.Object) int { return x.Key().Compare(y.Key()) })
}

// snapshot checks the whole before it decodes any part, and gives the checksum.
func (b *builder) snapshot(data *io.SectionReader) (sum string, err error) {
	if newer(data) {
		return "", errNewer
	}
	foot, size, err := checkFooter(data)
	if err != nil {
		return "", err
	}
	in := newLines(io.NewSectionReader(data, 0, size))
	first, err := in.next()
	if err != nil {
		return "", fmt.Errorf("header: %w", err)
	}
	head, err := parseHeader(first, snapshotFormat)
	if err != nil {
		return "", err
	}
	b.server, b.at, b.held = head.Server, head.At, head.Held
	for n := 0; ; n++ {
		line, err := in.next()
		switch {
		case errors.Is(err, io.EOF) && n == foot.Objects:
			return foot.SHA256, nil
		case errors.Is(err, io.EOF):
			return "", errFooter
		case err != nil:
			return "", err
		}
		r, err := b.record(line)
		if err != nil {
			return "", fmt.Errorf("decode line: %w", err)
		}
		obj := b.checked(&r)
		if obj == nil {
			continue
		}
		if key := obj.Key(); b.last.Compare(key) < 0 {
			b.objects, b.last = append(b.objects, obj), key
		} else {
			b.later[key] = obj
		}
	}
}

// record decodes a line.
func (b *builder) record(line []byte) (r record, err error) {
	var obj source.Object
	ok := false
	panicked := contain.Call(func() error {
		obj, ok = b.scanner.object(line)
		return nil
	})
	if ok && panicked == nil {
		return recordOf(source.Key{}, obj), nil
	}
	if err = json.Unmarshal(line, &r); err == nil {
		b.converter.Share(r.object())
	}
	return r, err
}

var errFooter = errors.New("the last line is not the number of objects and the SHA-256 of the content")

// maxFooter is more than the length of a footer.
const maxFooter = 256

// checkFooter compares the content with the checksum in the last line, and gives the size without that line.
func checkFooter(data *io.SectionReader) (f footer, size int64, err error) {
	if data.Size() > maxFile {
		return footer{}, 0, fmt.Errorf("it has %d MiB, more than %d", data.Size()>>20, maxFile>>20)
	}
	end := make([]byte, min(maxFooter, data.Size()))
	if _, err := data.ReadAt(end, data.Size()-int64(len(end))); err != nil {
		return footer{}, 0, fmt.Errorf("read the end: %w", err)
	}
	end, whole := bytes.CutSuffix(end, []byte("\n"))
	if !whole {
		return footer{}, 0, errNoEnd
	}
	last := end[bytes.LastIndexByte(end, '\n')+1:]
	size = data.Size() - int64(len(last)) - 1
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(data, 0, size)); err != nil {
		return footer{}, 0, fmt.Errorf("read: %w", err)
	}
	// What is not exactly as it was written is damaged, even if it means the same.
	if json.Unmarshal(last, &f) != nil || f.SHA256 != hex.EncodeToString(hash.Sum(nil)) {
		return footer{}, 0, errFooter
	}
	if want, err := json.Marshal(f); err != nil || !bytes.Equal(last, want) {
		return footer{}, 0, errFooter
	}
	return f, size, nil
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

// errNewer says that the state is of a later version of the program.
var errNewer = errors.New("it is of a newer version of Edgeway, and stays until the next one is saved")

// newer looks at the beginning alone, which is the same in all versions: what follows may have another form by then.
func newer(data *io.SectionReader) bool {
	v := 0
	_, err := fmt.Fscanf(io.NewSectionReader(data, 0, maxFooter), `{"format":"`+snapshotFormat+`","version":%d`, &v)
	return err == nil && v > version
}

// journal applies the changes up to the first damaged line.
func (b *builder) journal(data *io.SectionReader, base string) {
	in := newLines(io.NewSectionReader(data, 0, min(data.Size(), maxFile)))
	used := int64(0)
	for first := true; ; first = false {
		line, err := in.next()
		if err != nil {
			break
		}
		text, err := cutSum(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			break
		}
		if first {
			if h, err := parseHeader(text, journalFormat); err != nil || h.Base != base {
				return
			}
		} else {
			r, err := b.record(text)
			if err != nil {
				break
			}
			b.apply(&r)
		}
		used += int64(len(line))
	}
	b.torn = data.Size() - used
}

func (b *builder) apply(r *record) {
	if !r.At.IsZero() {
		b.at = r.At
	}
	if r.Held != nil {
		b.held = *r.Held
	}
	if r.Deleted != nil {
		if key, ok := r.Deleted.key(); ok {
			b.later[key] = nil
		}
		return
	}
	if obj := b.checked(r); obj != nil {
		b.later[obj.Key()] = obj
	}
}

// checked gives the record's object if it has one that can be used.
func (b *builder) checked(r *record) source.Object {
	obj := r.object()
	if obj == nil {
		return nil
	}
	err := contain.Call(func() error {
		if b.before != nil {
			b.before(obj.Key())
		}
		return convert.Check(obj)
	})
	switch {
	case contain.Is(err):
		b.panicked = err
		return source.Refuse(obj.Key(), "it cannot be read: "+err.Error())
	case err != nil:
		b.invalid++
		return nil
	}
	return obj
}
