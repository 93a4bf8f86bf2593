package file

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edgeway/daemon/regular"
	"edgeway/daemon/source"
)

// manifest is what a file held when it was read last.
type manifest struct {
	sum       [sha256.Size]byte
	documents []*document
	// kept are objects of earlier versions, for as long as a document is unusable.
	kept []source.Object
	// fault is why the file cannot be read now; nil: it can.
	fault error
}

// read reads what changed and tells the sink. It reports whether every path could be read.
func (s *Source) read(sink source.Sink) (healthy bool) {
	var faults []string
	files := make(map[string]error)
	for _, path := range s.paths {
		if err := listFiles(path, files); err != nil {
			faults = append(faults, err.Error())
			s.keepBelow(path, files)
		}
	}
	for path := range s.manifests {
		if _, ok := files[path]; !ok {
			delete(s.manifests, path)
		}
	}
	left := int64(maxTotal)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		left -= s.readFile(path, files[path], min(left, maxFile))
	}
	s.tell(sink, s.merge())
	s.setFault(strings.Join(faults, "; "))
	return len(faults) == 0
}

// listFiles adds the files of a path.
func listFiles(path string, files map[string]error) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	if !info.IsDir() {
		files[path] = nil
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			files[filepath.Join(path, name)] = nil
		}
	}
	return nil
}

// keepBelow adds the files that were read from a path which cannot be read now.
func (s *Source) keepBelow(path string, files map[string]error) {
	for known := range s.manifests {
		if known == path || filepath.Dir(known) == path {
			files[known] = fmt.Errorf("%s cannot be read", path)
		}
	}
}

// The bounds of what is read, of a file and of all files together; past the second, files are left out by path. An
// export of 10,000 Services with their EndpointSlices has some 40 MiB.
const (
	maxFile  = 16 << 20
	maxTotal = 128 << 20
)

// readFile reads one file again, unless it is known that it cannot be read, and gives its size.
func (s *Source) readFile(path string, fault error, limit int64) (size int64) {
	old := s.manifests[path]
	if old == nil {
		old = &manifest{}
		s.manifests[path] = old
	}
	if old.fault = fault; fault != nil {
		return 0
	}
	data, err := regular.Read(path, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist): // deleted since the folder was listed
		delete(s.manifests, path)
		return 0
	case err != nil:
		old.fault = reason(err, limit)
		return 0
	}
	if sum := sha256.Sum256(data); sum != old.sum {
		if parts, err := split(path, data); err != nil {
			old.fault = err
		} else {
			s.manifests[path] = s.parseFile(parts, sum, old)
		}
	}
	return int64(len(data))
}

// reason leaves out the path, which the fault's place has, and says what is too large.
func reason(err error, limit int64) error {
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, regular.ErrTooLarge) && limit < maxFile:
		return fmt.Errorf("all manifests together have more than %d MiB: remove some", maxTotal>>20)
	case errors.Is(err, regular.ErrTooLarge):
		return fmt.Errorf("it has more than %d MiB: split it", maxFile>>20)
	case errors.As(err, &pathErr):
		return pathErr.Err
	}
	return err
}

// parseFile reads what has changed since the old version.
func (s *Source) parseFile(parts []part, sum [sha256.Size]byte, old *manifest) *manifest {
	next := &manifest{sum: sum}
	known := make(map[[sha256.Size]byte]*document, len(old.documents))
	for _, d := range old.documents {
		if len(d.faults) == 0 { // faults may name lines, which move
			known[d.sum] = d
		}
	}
	for _, p := range parts {
		sum := sha256.Sum256(p.text)
		d := known[sum]
		if d == nil {
			d = s.parse(p)
			d.sum = sum
		}
		if !d.empty {
			next.documents = append(next.documents, d)
		}
	}
	next.keep(old)
	return next
}

// keep takes over what the old version held, if a document of this one is unusable.
func (m *manifest) keep(old *manifest) {
	if !slices.ContainsFunc(m.documents, func(d *document) bool { return len(d.faults) > 0 }) {
		return
	}
	here := make(map[source.Key]bool)
	for _, d := range m.documents {
		for _, obj := range d.objects {
			here[obj.Key()] = true
		}
	}
	for _, obj := range old.all() {
		if !here[obj.Key()] {
			m.kept = append(m.kept, obj)
		}
	}
}

func (m *manifest) all() []source.Object {
	out := slices.Clone(m.kept)
	for _, d := range m.documents {
		out = append(out, d.objects...)
	}
	return out
}
