package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/files"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

type manifest struct {
	sum [sha256.Size]byte
	// stamp is the file's metadata at the time when Edgeway computed the checksum. A zero stamp forces Edgeway to read
	// the file again.
	stamp     syscall.Stat_t
	documents []*document
	// ended reports whether the file ends, or has ever ended, with the document end marker.
	ended bool
	// fault explains why the file is currently unreadable. If fault is not nil, documents holds the last readable
	// version.
	fault error
}

// scan reads the files that have changed. Only scan may block on a file system.
func (s *Source) scan(r *readResult) {
	files := make(map[string]error)
	for _, path := range s.options.Paths {
		found := make(map[string]error)
		err := listFiles(path, found)
		if err == nil && len(found) == 0 {
			if s.servesFileBelow(path) {
				err = errEmptyFolder
			} else if !slices.Contains(r.emptyPaths, path) {
				r.emptyPaths = append(r.emptyPaths, path)
			}
		}
		if err != nil {
			r.hasUnreadablePath = true
			p := unreadable(path, reason(err, maxFile))
			r.add(p)
			r.paths = append(r.paths, p)
			s.keepBelow(path, found)
		}
		maps.Copy(files, found)
	}
	for path := range s.manifests {
		if _, ok := files[path]; !ok {
			delete(s.manifests, path)
		}
	}
	left := int64(maxTotal)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		left -= s.readFile(path, files[path], min(left, maxFile))
		r.noteProgress()
	}
}

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

var (
	errEmptyFolder = errors.New("no manifest is left")
	errEmptyFile   = errors.New("the file is empty")
	errGone        = errors.New("the file was deleted, or is a link to a file that does not exist")
	// errPath is the fault for files below an unreadable path. Edgeway reports the path's own fault separately.
	errPath = errors.New("the path is unreadable")
)

func (s *Source) servesFile(path string) bool {
	_, held := s.served[(&source.Manifest{Name: path}).Key()]
	return held
}

func (s *Source) servesFileBelow(folder string) bool {
	for key := range s.served {
		if key.Kind == source.KindManifest && filepath.Dir(key.Name) == folder {
			return true
		}
	}
	return false
}

// keepBelow adds to files each file that Edgeway read at or below a path before the path became unreadable.
func (s *Source) keepBelow(path string, files map[string]error) {
	for known := range s.manifests {
		if known == path || filepath.Dir(known) == path {
			files[known] = errPath
		}
	}
}

// Edgeway reads the files in path order, and skips a file that would bring the total size above maxTotal. An export of
// 10,000 Services with their EndpointSlices is about 40 MiB.
const (
	maxFile  = 16 << 20
	maxTotal = 128 << 20
)

// readFile reads the file at path if the file has changed and fault is nil. The result is the file's size.
func (s *Source) readFile(path string, fault error, limit int64) (size int64) {
	old := s.manifests[path]
	if old == nil {
		old = &manifest{}
		s.manifests[path] = old
	}
	if old.fault = fault; fault != nil {
		return 0
	}
	// An NFS client asks the server for changes only when it opens a file, so readFile opens even a file that seems
	// unchanged.
	file, info, err := files.Open(path)
	if err == nil {
		defer file.Close()
		if info.Size() <= limit && old.stamp != (syscall.Stat_t{}) && old.stamp == stampOf(info) {
			return info.Size()
		}
		size, err = s.readOpen(file, info, old, limit)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // the next listing shows whether the file, or its directory, was deleted
		old.fault = errGone
	case err != nil:
		old.fault = reason(err, limit)
	}
	return size
}

func (s *Source) readOpen(file *os.File, info fs.FileInfo, old *manifest, limit int64) (size int64, err error) {
	path := file.Name()
	old.stamp = syscall.Stat_t{}
	data, err := files.ReadOpen(file, info, limit)
	switch {
	case err != nil:
		return 0, err
	case len(bytes.TrimSpace(data)) == 0 && s.servesFile(path):
		old.fault = errEmptyFile
		return 0, nil
	}
	read := old
	if sum := sha256.Sum256(data); sum != old.sum {
		read = s.parseFile(path, split(path, data), sum, old)
		if filepath.Ext(path) != ".json" {
			s.detectTruncation(path, data, read)
		}
		s.manifests[path] = read
	}
	if stamp := stampOf(info); read.fault == nil && s.isStable(stamp) {
		read.stamp = stamp
	}
	return int64(len(data)), nil
}

// detectTruncation makes the last document of a YAML file unusable if the file appears to be truncated, because the
// remaining text may be valid but incomplete.
func (s *Source) detectTruncation(path string, data []byte, m *manifest) {
	before, _ := s.served[(&source.Manifest{Name: path}).Key()].(*source.Manifest)
	hadMarker := before != nil && before.Ended
	m.ended = hadMarker || hasEndMarker(data)
	cut := source.FaultOf(source.Key{}, "", "")
	cut.Position = formatPosition(path, bytes.Count(data, []byte("\n"))+1)
	switch {
	case len(data) > 0 && data[len(data)-1] != '\n':
		cut.Message, cut.Fix = "the last line does not end with a newline, so the file may be truncated",
			"add a newline"
	case hadMarker && !hasEndMarker(data):
		cut.Message = "the document end marker at the end of the file is gone, so the file may be truncated"
		cut.Fix = "add a line of three dots"
	default:
		return
	}
	broken := &document{line: 1, faults: []fault.Fault{cut}}
	switch last := len(m.documents) - 1; {
	case last < 0:
		m.documents = []*document{broken}
	case len(m.documents[last].faults) == 0:
		broken.line = m.documents[last].line
		m.documents[last] = broken
	}
}

func hasEndMarker(data []byte) bool {
	text := bytes.TrimRight(data, " \t\r\n")
	return bytes.HasSuffix(text, []byte("\n...")) || string(text) == "..."
}

// stampOf returns the metadata that changes with each write to a file, provided that the file system's clock has
// advanced since the previous write. The metadata excludes the access time, because each read changes it.
func stampOf(info fs.FileInfo) syscall.Stat_t {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return syscall.Stat_t{}
	}
	stamp := *stat
	stamp.Atim = syscall.Timespec{}
	return stamp
}

// isStable reports whether every later write to the file is certain to change the file's stamp. The result is false for
// a stamp in the future.
func (s *Source) isStable(stamp syscall.Stat_t) bool {
	return time.Since(time.Unix(stamp.Ctim.Unix())) > s.timestampMargin
}

// reason returns err without the path, because the fault's position already contains the path. If a file exceeds a size
// limit, the returned error names the limit.
func reason(err error, limit int64) error {
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, files.ErrTooLarge) && limit < maxFile:
		return fmt.Errorf("the manifests exceed %d MiB in total: remove some manifests", maxTotal>>20)
	case errors.Is(err, files.ErrTooLarge):
		return fmt.Errorf("the file is larger than %d MiB: split it", maxFile>>20)
	case errors.As(err, &pathErr):
		return pathErr.Err
	}
	return err
}

func unreadable(path string, err error) fault.Fault {
	fix := files.Advice(path, err)
	switch {
	case errors.Is(err, errEmptyFolder):
		fix = "mount the file system; to remove all Services that the directory defined, " +
			"add a file that contains only a comment"
	case errors.Is(err, errEmptyFile):
		fix = "restore the file; to remove all Services that the file defined, delete the file, " +
			"or replace a YAML file's content with a comment"
	case errors.Is(err, errGone):
		fix = "restore the file, or delete the link"
	case errors.Is(err, fs.ErrNotExist) && !strings.Contains(path, "/~"):
		fix = "restore the path, or remove it from source.file.paths"
	case fix == "" && errors.As(err, new(unix.Errno)): // EIO, or an error of a network file system
		fix = "journalctl -k"
	}
	f := source.FaultOf(source.Key{Kind: source.KindDocument, Name: path}, "", "%s", err)
	f.Position, f.Fix = path, fix
	return f
}

func (s *Source) parseFile(path string, parts []part, sum [sha256.Size]byte, old *manifest) *manifest {
	next := &manifest{sum: sum}
	known := make(map[[sha256.Size]byte]*document, len(old.documents))
	for _, d := range old.documents {
		if !d.hasFaults() { // the line numbers in faults may have changed
			known[d.sum] = d
		}
	}
	for _, p := range parts {
		sum := sha256.Sum256(p.text)
		d := known[sum]
		if d == nil {
			d = s.parse(path, p)
			d.sum = sum
		}
		d.line = p.lines + 1
		if !d.empty {
			next.documents = append(next.documents, d)
		}
	}
	return next
}
