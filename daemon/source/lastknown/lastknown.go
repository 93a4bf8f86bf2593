// Package lastknown keeps on disk what a source had last, the API server or the manifests, so that a host that boots
// without it still has its Services.
//
// There are two files. The snapshot holds a header line, one line of JSON for each object, and a
// footer line with the SHA-256 of all before it; it is replaced as a whole. The journal holds the
// changes since the snapshot, one line each, with a checksum in front; when it has outgrown the
// snapshot, a new snapshot takes its place. So a change costs what it changes, however much there
// is. Both files can be read with any pager.
//
// A snapshot that is damaged in any way, or larger than any that is written, is set aside and not used. A journal
// is used up to its first damaged line: a loss of power tears the last one. A snapshot of a later version of the
// program is not used either, and stays until there is another.
package lastknown

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

// Options of a Store. All but Name and Confirmed are required.
type Options struct {
	// Name is the Store's as a source; empty: "lastknown".
	Name string
	// Server identifies the cluster, by the URL of its API server now. State that was saved for another
	// one is not used. Manifests have none: it is empty.
	Server func() string
	// Objects gives all that the source which is recorded has now; Tee's sink is what took it. It is
	// called from the Store's goroutine.
	Objects func() iter.Seq[source.Object]
	// Confirmed tells when the source last confirmed the state, for Age; nil: when it was written.
	Confirmed func() time.Time
	Logger    *slog.Logger
	// Before is called with the key of each object that is loaded. Tests make it panic. It may be nil.
	Before func(source.Key)
}

// Store is the state on disk, as a source and as a recorder. It is made by New.
type Store struct {
	dir string
	o   Options
	log *slog.Logger

	wake chan struct{} // there is something to write

	mu     sync.Mutex
	synced bool      // Run has loaded the state, or saved one
	age    time.Time // when the state on disk was last confirmed; zero: there is none
	fault  string
	rec    *recorder
	held   []source.Holding    // of the state that was loaded
	server []source.ServerAddr // likewise: the proven addresses of the API server

	journal journal // used by Run alone
}

var _ source.Source = (*Store)(nil)

// New touches nothing: Run reads the state, and writing makes the directory.
func New(dir string, o Options) *Store {
	if o.Name == "" {
		o.Name = "lastknown"
	}
	return &Store{dir: dir, o: o, log: o.Logger, wake: make(chan struct{}, 1)}
}

// Name implements source.Source.
func (s *Store) Name() string { return s.o.Name }

// Status implements source.Source. LastContact is Age.
func (s *Store) Status() source.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return source.Status{Synced: s.synced, LastContact: s.age, Err: s.fault}
}

// Age gives the time at which the state on disk last agreed with its source; ok is false when
// there is no state.
func (s *Store) Age() (saved time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.age, !s.age.IsZero()
}

// Held gives what the last Commit before the start was told; nothing before the state has been loaded, or
// without one.
func (s *Store) Held() []source.Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// ServerAddrs returns the proven addresses of the API server, or of the proxy to it; nil before the state has been
// loaded, or without one.
func (s *Store) ServerAddrs() []source.ServerAddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// Recall loads the state for Held and ServerAddrs alone, and changes nothing on disk; Run does the same and more.
func (s *Store) Recall() error {
	st, err := readState(s.dir, s.o.Before)
	if err == nil && st.server == s.o.Server() {
		s.loaded(st)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// The times of writing.
const (
	debounce = time.Second
	// refresh is how often the time of the last confirmation is written when nothing else is.
	refresh = 10 * time.Minute
	// retry is when a write that failed is tried again.
	retry = 30 * time.Second
)

// Run implements source.Source: Load, then Record. Without a saved state it says Synced at once; with one that cannot be
// used it does not: the host then waits for the API server and keeps what it has, until its state can be saved.
func (s *Store) Run(ctx context.Context, sink source.Sink) error {
	if objects, ok := s.Load(); ok {
		for _, obj := range objects {
			sink.Upsert(obj)
		}
		sink.Synced()
	}
	s.Record(ctx)
	return nil
}

// Record writes what is recorded until ctx ends, and once more before it returns. Faults are in Status.
func (s *Store) Record(ctx context.Context) {
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			s.write()
			s.journal.close()
			return
		case <-s.wake:
			select {
			case <-time.After(debounce):
			case <-ctx.Done():
			}
		case <-again:
		case <-tick.C:
		}
		again = nil
		if !s.write() {
			again = time.After(retry)
		}
	}
}

// removeTemporary removes what a crash in the middle of a write left behind.
func (s *Store) removeTemporary() {
	stale, err := filepath.Glob(filepath.Join(s.dir, ".lastknown.*"))
	if err != nil {
		return // a directory that is called like a faulty pattern: then they stay
	}
	for _, path := range stale {
		_ = os.Remove(path)
	}
}

// Load gives the saved state, without objects if there is none; ok is false if there is one that cannot be used. It is
// for one source or the other, before the first Commit.
func (s *Store) Load() (objects []source.Object, ok bool) {
	s.removeTemporary()
	start := time.Now()
	st, err := readState(s.dir, s.o.Before)
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.loaded(&state{})
		return nil, true
	case errors.Is(err, errNewer): // the next snapshot replaces it; until then the later version can come back to it
		s.setFault(err.Error())
		s.log.Warn("last-known state not used", "message_id", messageid.LastKnownUnused, "error", err)
		return nil, false
	case err != nil:
		aside := s.setAside()
		s.setFault(err.Error())
		s.log.Error("last-known state not used", "message_id", messageid.LastKnownUnused,
			"error", err, "set_aside", aside)
		return nil, false
	case st.server != s.o.Server():
		err := fmt.Errorf("the state is of another API server, %.200q", st.server)
		s.setFault(err.Error())
		s.log.Warn("last-known state not used", "message_id", messageid.LastKnownUnused, "error", err)
		return nil, false
	}
	if st.torn > 0 {
		s.log.Warn("end of the last-known journal is damaged and was left out", "message_id", messageid.LastKnownTorn,
			"bytes", st.torn, "used_until", st.at)
	}
	if st.panicked != nil {
		s.log.Error("object panicked", "error", st.panicked, "stack", contain.Stack(st.panicked))
	}
	if st.invalid > 0 {
		s.log.Warn("invalid objects of the last-known state were left out", "objects", st.invalid)
	}
	s.loaded(st)
	s.log.Info("last-known state loaded", "objects", len(st.objects), "saved", st.at, "duration", time.Since(start))
	return st.objects, true
}

func (s *Store) loaded(st *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, s.age, s.held = true, st.at, st.held
	for _, obj := range st.objects {
		if api, ok := obj.(*source.APIServer); ok {
			s.server = append(s.server, api.Proven...)
		}
	}
}

func (s *Store) setFault(fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// maxAside is how many damaged versions of a file are kept.
const maxAside = 3

// setAside renames both files, so that a person can look at them, and gives the snapshot's new name.
func (s *Store) setAside() string {
	suffix := ".damaged-" + time.Now().UTC().Format("20060102T150405Z")
	for _, name := range []string{snapshotName, journalName} {
		path := filepath.Join(s.dir, name)
		if err := os.Rename(path, path+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.log.Error("damaged file cannot be set aside", "error", err)
		}
		s.removeOld(name + ".damaged-")
	}
	return filepath.Join(s.dir, snapshotName+suffix)
}

// removeOld leaves the latest files with this beginning.
func (s *Store) removeOld(prefix string) {
	entries, err := os.ReadDir(s.dir) // sorted by name, and so by time
	if err != nil {
		return // then the damaged state was not even found
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), prefix) })
	for _, e := range entries[:max(0, len(entries)-maxAside)] {
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
			s.log.Warn("old damaged file not removed", "error", err)
		}
	}
}
