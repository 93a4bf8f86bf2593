package lastknown

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/fault"
)

const (
	debounce = time.Second
	// agePeriod is the time between two updates of the snapshot's modification time while no object changes.
	agePeriod = 10 * time.Minute
	// retryDelay is the minimum delay after a failed write.
	retryDelay = 30 * time.Second
)

// writePause returns the delay between two writes. The delay is at least 100 times the duration of the last write, so a
// slow disk is busy for at most 1 % of the time. To preserve SD cards, the delay also limits the writes to 1 GB a day
// (11.5 kB/s).
func writePause(size int64, took time.Duration) time.Duration {
	return max(100*took, time.Duration(size)*time.Second/11_500)
}

// Record writes the committed changes until ctx is done, and once more before returning. Status reports failed writes.
func (s *Store) Record(ctx context.Context) {
	tick := time.NewTicker(agePeriod)
	defer tick.Stop()
	due := time.After(debounce) // if Record panicked earlier, there may be unwritten changes
	for {
		select {
		case <-ctx.Done():
			if s.save() {
				s.saveAge()
			}
			return
		case <-s.wake:
			if due == nil {
				due = time.After(max(debounce, time.Until(s.next)))
			}
		case <-due:
			due = nil
			if !s.save() {
				due = time.After(max(retryDelay, time.Until(s.next)))
			}
		case <-tick.C:
			if due == nil {
				s.saveAge()
			}
		}
	}
}

// Commit tells the Store that the host is in sync with the source's objects and that the Store can save them. Commit
// has no effect until the source has listed all objects. held lists the sorted holdings that Holdings returns after a
// restart. The caller must not modify held afterwards.
func (s *Store) Commit(held []source.Holding) {
	n, synced := s.o.Changes()
	if !synced {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = &revision{n, held}
	if s.hasUnsaved() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// hasUnsaved reports whether the snapshot lacks committed changes. The caller must hold s.mu.
func (s *Store) hasUnsaved() bool {
	return s.committed != nil &&
		(s.saved == nil || s.saved.changes < s.committed.changes || !slices.Equal(s.saved.held, s.committed.held))
}

// save writes the objects if the snapshot lacks committed changes, and reports whether all committed changes are on
// disk. The objects may be newer than the last Commit.
func (s *Store) save() bool {
	s.mu.Lock()
	want, dirty := s.committed, s.hasUnsaved()
	s.mu.Unlock()
	if !dirty {
		return true
	}
	n, _ := s.o.Changes()
	start, at := time.Now(), s.confirmedAt()
	size, err := s.writeSnapshot(s.o.Objects(), want.held, at)
	s.next = time.Now().Add(writePause(size, time.Since(start)))
	s.recordWrite(&revision{n, want.held}, at, err)
	return err == nil
}

// confirmedAt returns the time when the source last confirmed its objects, truncated to whole seconds for readability.
func (s *Store) confirmedAt() time.Time {
	at := time.Now()
	if s.o.ConfirmedAt != nil {
		at = s.o.ConfirmedAt()
	}
	return at.UTC().Truncate(time.Second)
}

// saveAge sets the snapshot's modification time to the time when the source last confirmed its objects. Setting the
// modification time writes only an inode, not all objects.
func (s *Store) saveAge() {
	at := s.confirmedAt()
	s.mu.Lock()
	// If the clock was wrong, the new time can be earlier than s.savedAt.
	skip := s.committed == nil || s.hasUnsaved() || at.IsZero() || at.Equal(s.savedAt)
	s.mu.Unlock() // a disk that does not respond must not block the other methods
	if skip || os.Chtimes(filepath.Join(s.dir, snapshotName), time.Time{}, at) != nil {
		return // after an error, keep the old age
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.savedAt = at
}

// recordWrite stores the outcome of a write for Status and SavedAt.
func (s *Store) recordWrite(r *revision, at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		fix := ""
		if errors.As(err, new(syscall.Errno)) {
			fix = "ls -ld " + s.dir
		}
		if isFull(err) {
			fix = "df -h " + s.dir
		}
		s.fault = s.newFault(fix, err.Error())
		return
	}
	s.saved, s.fault, s.savedAt, s.synced = r, fault.Fault{}, at, true // the write replaces an unusable state
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// wrapError wraps an error but omits the name of the temporary file, so repeated faults have the same message.
func (s *Store) wrapError(what string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	if isFull(err) {
		return fmt.Errorf("last-known state: %s is full: %w", s.dir, err)
	}
	return fmt.Errorf("last-known state: %s in %s: %w", what, s.dir, err)
}

func (s *Store) writeSnapshot(objects []source.Object, held []source.Holding, at time.Time) (size int64, err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return 0, s.wrapError("create directory", err)
	}
	path := filepath.Join(s.dir, snapshotName)
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(s.dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return 0, s.wrapError("create snapshot", err)
	}
	defer file.Cleanup() //nolint:errcheck // Cleanup does nothing after the file was replaced
	head := header{Format: snapshotFormat, Version: version, Cluster: s.o.Cluster(), At: at, Held: held}
	size, err = encodeSnapshot(file, head, objects)
	if err != nil {
		return size, s.wrapError("write snapshot", err)
	}
	if size > maxFile {
		return size, s.wrapError("write snapshot",
			fmt.Errorf("the snapshot size of %d MiB exceeds the maximum of %d MiB", size>>20, maxFile>>20))
	}
	if err := os.Chtimes(file.Name(), time.Time{}, at); err != nil {
		return size, s.wrapError("write snapshot", err)
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return size, s.wrapError("replace snapshot", err)
	}
	return size, nil
}

// encodeSnapshot writes a snapshot to w, but omits Documents, objects that fail convert.Validate, and objects that do
// not fit into a line.
func encodeSnapshot(w io.Writer, head header, objects []source.Object) (size int64, err error) {
	l := newLineWriter(w)
	if !l.write(head) {
		head.Held = nil // without holdings, Edgeway only decides again which of several Services gets an address
		if !l.write(head) {
			return 0, errors.New("the header exceeds the maximum length of a line")
		}
	}
	n := 0
	for _, obj := range objects {
		if r, ok := recordOf(obj); ok && convert.Validate(obj) == nil && l.write(r) {
			n++
		}
	}
	if err := l.out.Flush(); err != nil {
		return l.size, err
	}
	l.write(footer{Objects: n, SHA256: hex.EncodeToString(l.hash.Sum(nil))})
	return l.size, l.out.Flush()
}

// lineWriter writes JSON lines. The lines share one buffer to save memory, because the daemon usually writes its first
// snapshot before the first garbage collection.
type lineWriter struct {
	hash    hash.Hash
	out     *bufio.Writer // out keeps the first error
	line    bytes.Buffer
	encoder *json.Encoder
	size    int64
}

func newLineWriter(w io.Writer) *lineWriter {
	l := &lineWriter{hash: sha256.New()}
	l.encoder, l.out = json.NewEncoder(&l.line), bufio.NewWriter(io.MultiWriter(w, l.hash))
	return l
}

// write writes v as a line of JSON, and reports whether v fits into a line. write also returns false if JSON cannot
// encode v, for example a time with a year above 9999.
func (l *lineWriter) write(v any) bool {
	l.line.Reset()
	if l.encoder.Encode(v) != nil || l.line.Len() > maxLine {
		return false
	}
	l.size += int64(l.line.Len())
	_, _ = l.out.Write(l.line.Bytes())
	return true
}
