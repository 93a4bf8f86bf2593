package lastknown

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/messageid"
)

// journal is the file that changes are appended to; file is nil while there is none.
type journal struct {
	file  *os.File
	size  int64 // bytes of changes
	limit int64 // at this size a snapshot replaces it
	at    time.Time
	// server is the one in the header of the snapshot.
	server string
}

// minJournal is the size below which a journal is never worth a new snapshot.
const minJournal = 1 << 20

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close() // every write was followed by Sync
		j.file = nil
	}
}

// write saves what is committed, and reports whether nothing is left to be tried again.
func (s *Store) write() bool {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	if rec == nil {
		return true
	}
	batch, ok := rec.take()
	if !ok {
		return true
	}
	at := s.confirmed()
	var err error
	defer func() {
		if recovered := recover(); recovered != nil { // the journal may hold half a line
			s.journal.close()
			rec.again()
			panic(recovered)
		}
	}()
	switch {
	case batch.whole || s.journal.file == nil || s.journal.size > s.journal.limit || s.journal.server != s.o.Server():
		err = s.writeSnapshot(batch.held, at)
	case len(batch.changed) > 0 || batch.heldChanged || at.Sub(s.journal.at) >= time.Minute:
		err = s.appendJournal(batch, at)
	default:
		return true
	}
	s.written(at, err)
	if err != nil {
		s.journal.close()
		rec.again()
		return false
	}
	return true
}

// confirmed is rounded: it is for people.
func (s *Store) confirmed() time.Time {
	at := time.Now()
	if s.o.Confirmed != nil {
		at = s.o.Confirmed()
	}
	return at.UTC().Truncate(time.Second)
}

// written notes the outcome, and logs it when it is another than before.
func (s *Store) written(at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		fault := err.Error()
		if s.fault != fault {
			s.log.Error("last-known state not saved", "message_id", messageid.LastKnownUnsaved, "error", err)
		}
		s.fault = fault
	default:
		if s.fault != "" {
			s.log.Info("last-known state saved again")
		}
		// What could not be used at the start is replaced now.
		s.fault, s.age, s.synced = "", at, true
	}
}

// failed leaves the name of the temporary file out: the same fault shall have the same text.
func (s *Store) failed(what string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return fmt.Errorf("last-known state: %s in %s: %w", what, s.dir, err)
}

// writeSnapshot writes all there is, and begins a journal that goes on from it.
func (s *Store) writeSnapshot(held []source.Holding, at time.Time) error {
	s.journal.close()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return s.failed("make folder", err)
	}
	objects := slices.Collect(s.o.Objects())
	slices.SortFunc(objects, func(a, b source.Object) int { return a.Key().Compare(b.Key()) })

	file, err := renameio.NewPendingFile(filepath.Join(s.dir, snapshotName), renameio.WithTempDir(s.dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return s.failed("make snapshot", err)
	}
	defer file.Cleanup() //nolint:errcheck // it does nothing after the file was replaced
	server := s.o.Server()
	sum, size, err := encodeSnapshot(file, header{Format: snapshotFormat, Version: version, Server: server, At: at, Held: held}, objects)
	if err != nil {
		return s.failed("write snapshot", err)
	}
	if size > maxFile {
		return s.failed("write snapshot", fmt.Errorf("it has %d MiB, more than %d", size>>20, maxFile>>20))
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return s.failed("replace snapshot", err)
	}
	if err := s.newJournal(sum, size, at); err != nil {
		return err
	}
	s.journal.server = server
	return nil
}

// encodeSnapshot leaves out what Check refuses, objects that carry nothing but their faults, and what is too long to
// be read again.
func encodeSnapshot(w io.Writer, head header, objects []source.Object) (sum string, size int64, err error) {
	out := bufio.NewWriter(w)
	hash := sha256.New()
	var line bytes.Buffer // one for all: what is written soon after the start would otherwise stay as garbage until the next collection
	emit := func(v any) error {
		line.Reset()
		if err := appendLine(&line, v); err != nil {
			return err
		}
		hash.Write(line.Bytes())
		size += int64(line.Len())
		_, err := out.Write(line.Bytes())
		return err
	}
	if err := emit(head); err != nil {
		return "", 0, err
	}
	n := 0
	var r record
	for _, obj := range objects {
		if convert.Check(obj) != nil {
			continue
		}
		r = recordOf(obj.Key(), obj)
		switch err := emit(&r); {
		case errors.Is(err, errLine):
		case err != nil:
			return "", 0, err
		default:
			n++
		}
	}
	sum = hex.EncodeToString(hash.Sum(nil))
	if err := emit(footer{Objects: n, SHA256: sum}); err != nil {
		return "", 0, err
	}
	return sum, size, out.Flush()
}

func (s *Store) newJournal(base string, snapshotSize int64, at time.Time) error {
	path := filepath.Join(s.dir, journalName)
	var head bytes.Buffer
	if err := appendSummed(&head, header{Format: journalFormat, Version: version, Base: base}); err != nil {
		return err
	}
	if err := renameio.WriteFile(path, head.Bytes(), 0o600, renameio.WithTempDir(s.dir), renameio.WithStaticPermissions(0o600)); err != nil {
		return s.failed("begin journal", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return s.failed("begin journal", err)
	}
	s.journal = journal{file: file, limit: max(snapshotSize, minJournal), at: at}
	return nil
}

// appendJournal appends a batch of changes, and the time, in one write.
func (s *Store) appendJournal(batch pending, at time.Time) error {
	var out bytes.Buffer
	for key, obj := range batch.changed {
		if obj != nil && convert.Check(obj) != nil {
			obj = nil
		}
		err := appendSummed(&out, recordOf(key, obj))
		if errors.Is(err, errLine) {
			err = appendSummed(&out, recordOf(key, nil))
		}
		if err != nil {
			return err
		}
	}
	last := record{At: at}
	if batch.heldChanged {
		held := append([]source.Holding{}, batch.held...) // nothing is [], not null
		last.Held = &held
	}
	if err := appendSummed(&out, last); err != nil {
		return err
	}
	if _, err := s.journal.file.Write(out.Bytes()); err != nil {
		return s.failed("append to journal", err)
	}
	if err := s.journal.file.Sync(); err != nil {
		return s.failed("append to journal", err)
	}
	s.journal.size += int64(out.Len())
	s.journal.at = at
	return nil
}
