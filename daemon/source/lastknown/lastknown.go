// Package lastknown keeps on disk what a source had last, the API server or the manifests, so that a host that boots
// without that source still has its Services.
//
// The state is one file, the snapshot: a header, one line of JSON for each object, and a footer with the SHA-256 of all
// lines before it. Each write replaces the file as a whole. Writes are rare, so that the flash memory of a small host
// lives: a power cut loses the changes since the last write, and matters only if the API server is away at the next
// boot.
//
// A snapshot that is damaged in any way, or larger than Edgeway ever writes, is set aside and not used. A snapshot of a
// later version of Edgeway is not used either, and stays until there is another one.
package lastknown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

// Options of a Store. Cluster and Logger are required.
type Options struct {
	// Name is the Store's name as a source. The default is "lastknown".
	Name string
	// Cluster returns the cluster that the source reads at present. State of another cluster is not used. It returns
	// the zero value for manifests.
	Cluster func() Cluster
	// Confirmed returns the time at which the source last confirmed the state, for Age. The default is the time of the
	// write.
	Confirmed func() time.Time
	Logger    *slog.Logger
	// Before is called with the key of each object that is loaded, unless it is nil. Tests make it panic.
	Before func(source.Key)
}

// Store is the state on disk, as a source and as a recorder.
type Store struct {
	dir string
	o   Options
	log *slog.Logger

	wake chan struct{} // signals that there are changes to write

	mu     sync.Mutex
	synced bool      // Run has loaded or saved the state
	age    time.Time // when the state on disk was last confirmed; zero if there is none
	fault  string
	fix    string // of the fault
	rec    *recorder
	held   []source.Holding    // of the state that was loaded
	server []source.ServerAddr // the proven addresses of the API server, of the state that was loaded

	next time.Time // the earliest time of the next write; used by Record alone
}

var _ source.Source = (*Store)(nil)

// New returns a Store and touches no file: Run reads the state, and the first write creates the directory.
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
	return source.Status{Synced: s.synced, LastContact: s.age, Err: s.fault, Fix: s.fix}
}

// FaultID is the ID of the faults of a last-known state.
const FaultID = "last-known"

// Faults returns why the state on disk cannot be used, or is not saved.
func (s *Store) Faults() []fault.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == "" {
		return nil
	}
	return []fault.Fault{fault.New(FaultID, fault.Warning, s.fix, "%s", s.fault).Of(s.dir)}
}

// Age returns the time at which the state on disk last agreed with its source; ok is false if there is no state.
func (s *Store) Age() (saved time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.age, !s.age.IsZero()
}

// Held returns the holdings of the last Commit before the start. It returns nil before the state has been loaded, and
// without a state.
func (s *Store) Held() []source.Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// ServerAddrs returns the proven addresses of the API server, or of the proxy to it. It returns nil before the state
// has been loaded, and without a state.
func (s *Store) ServerAddrs() []source.ServerAddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// Recall loads the state for Held and ServerAddrs alone and changes nothing on disk.
func (s *Store) Recall() error {
	st, err := readState(s.dir, s.o.Before)
	if err == nil && st.cluster.same(s.o.Cluster()) {
		s.loaded(st)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Run implements source.Source: Load, then Record. Without a saved state it reports Synced at once. With an unusable
// state it does not: the host then waits for the API server and keeps its rules until a new state is saved.
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

// Load returns the saved objects, or none if nothing was saved; ok is false if the state cannot be used. Call it once,
// before the first Commit.
func (s *Store) Load() (objects []source.Object, ok bool) {
	s.removeTemporary()
	start := time.Now()
	st, err := readState(s.dir, s.o.Before)
	if err == nil && !st.cluster.same(s.o.Cluster()) {
		err = fmt.Errorf("%w, %.200q", errOther, st.cluster.Server)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.loaded(&state{})
		return nil, true
	case errors.Is(err, errNewer), errors.Is(err, errOther): // the next write replaces it; until then it stays
		s.setFault(err.Error())
		s.log.Warn("last-known state not used", "message_id", messageid.LastKnownUnused, "error", err)
		return nil, false
	case err != nil:
		aside := s.setAside()
		s.setFault(err.Error())
		s.log.Error("last-known state not used", "message_id", messageid.LastKnownUnused,
			"error", err, "set_aside", aside)
		return nil, false
	}
	if st.torn {
		s.log.Warn("last-known journal is damaged at its end", "message_id", messageid.LastKnownTorn,
			"used_until", st.at)
	}
	if st.panicked != nil {
		s.log.Error("object panicked", "error", st.panicked, "stack", contain.Stack(st.panicked))
	}
	if st.invalid > 0 {
		s.log.Warn("invalid objects of the last-known state skipped", "objects", st.invalid)
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
	s.fault, s.fix = fault, ""
}

// removeTemporary removes the files of a write that a crash interrupted.
func (s *Store) removeTemporary() {
	stale, err := filepath.Glob(filepath.Join(s.dir, ".lastknown.*"))
	if err != nil {
		return // the directory's name is an invalid pattern
	}
	for _, path := range stale {
		_ = os.Remove(path)
	}
}

// maxAside is the number of damaged snapshots that are kept.
const maxAside = 3

// setAside renames the snapshot, so that a person can examine it, and returns its new path.
func (s *Store) setAside() string {
	const mark = ".damaged-"
	path := filepath.Join(s.dir, snapshotName)
	aside := path + mark + time.Now().UTC().Format("20060102T150405Z")
	if err := os.Rename(path, aside); err != nil {
		s.log.Error("damaged file cannot be set aside", "error", err)
	}
	entries, err := os.ReadDir(s.dir) // sorted by name, and so by time
	if err != nil {
		return aside
	}
	entries = slices.DeleteFunc(entries,
		func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), snapshotName+mark) })
	for _, e := range entries[:max(0, len(entries)-maxAside)] {
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
			s.log.Warn("old damaged file not removed", "error", err)
		}
	}
	return aside
}

// Saved describes a state on disk.
type Saved struct {
	At   time.Time        // when the source last confirmed the state
	Held []source.Holding // see Store.Held
}

// Peek hands the state in a directory to the sink, once, and changes nothing on disk: a daemon may be running. It fails
// if there is no state, or none that can be used.
func Peek(dir string, sink source.Sink) (Saved, error) {
	st, err := readState(dir, nil)
	if err != nil {
		return Saved{}, err
	}
	for _, obj := range st.objects {
		sink.Upsert(obj)
	}
	sink.Synced()
	return Saved{st.at, st.held}, nil
}
