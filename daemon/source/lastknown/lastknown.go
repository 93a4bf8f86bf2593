// Package lastknown saves the latest objects of a source (the API server or the manifests) on disk. A host that boots
// while the source is unavailable can still serve the saved Services.
//
// The last-known state is one file, the snapshot. A snapshot consists of a header, one line of JSON for each object,
// and a footer with the SHA-256 of all preceding lines. Each write replaces the whole file. Edgeway writes rarely, to
// protect the flash memory of small hosts. After a power failure, the snapshot lacks the changes since the last write.
// The missing changes matter only if the API server is unreachable at the next boot.
//
// Edgeway renames a snapshot that is damaged or too large, and does not load it. Edgeway does not load a snapshot from
// a later version of Edgeway either, but keeps it until the next write.
package lastknown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

// Options configure a Store. Cluster and Logger are required. Commit also requires Changes and Objects.
type Options struct {
	// Name is the Store's name as a source. The default is "lastknown".
	Name string
	// Cluster returns the cluster that the source reads from, or the zero value for manifests. The Store ignores the
	// saved state of another cluster.
	Cluster func() Cluster
	// Changes returns the number of changes to the source's objects. synced reports whether the source has listed all
	// objects.
	Changes func() (n uint64, synced bool)
	// Objects returns the source's objects in any order.
	Objects func() []source.Object
	// ConfirmedAt returns the time when the source last confirmed that its objects are up to date. After a write,
	// SavedAt returns the result of ConfirmedAt. If ConfirmedAt is nil, the Store uses the time of the write.
	ConfirmedAt func() time.Time
	Logger      *slog.Logger
	// If BeforeLoad is not nil, the Store calls it with the key of each loaded object. Tests use BeforeLoad to cause
	// panics.
	BeforeLoad func(source.Key)
}

// Store saves the objects of another source on disk, and is itself a source of the saved objects.
type Store struct {
	dir string
	o   Options
	log *slog.Logger

	wake chan struct{}
	// loaded is closed after the first Load.
	loadOnce sync.Once
	loaded   chan struct{}

	mu        sync.Mutex
	synced    bool                // Run has loaded or saved the state
	savedAt   time.Time           // when the source last confirmed the state on disk, or zero if there is no state
	fault     fault.Fault         // zero if there is none
	holdings  []source.Holding    // the holdings of the loaded state
	server    []source.ServerAddr // the proven addresses of the API server in the loaded state
	loadedAny bool                // the loaded state has objects
	committed *revision           // the latest Commit, or nil
	saved     *revision           // what this process has saved, or nil

	next time.Time // the earliest time of the next write; only Record uses this field
}

// revision identifies a version of the source's objects by the number of changes, and contains the holdings of that
// version.
type revision struct {
	changes uint64
	held    []source.Holding
}

var _ source.Source = (*Store)(nil)

// New returns a Store without accessing any file. Run reads the saved state, and the first write creates the directory.
func New(dir string, o Options) *Store {
	if o.Name == "" {
		o.Name = "lastknown"
	}
	return &Store{dir: dir, o: o, log: o.Logger, wake: make(chan struct{}, 1), loaded: make(chan struct{})}
}

// Name implements source.Source.
func (s *Store) Name() string { return s.o.Name }

// Status implements source.Source. LastContact is the time that SavedAt returns.
func (s *Store) Status() source.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return source.Status{Synced: s.synced, LastContact: s.savedAt, Fault: s.fault}
}

// FaultID is the ID of faults that concern the last-known state.
const FaultID = "last-known"

// Faults returns the faults that prevent Edgeway from using or saving the state on disk.
func (s *Store) Faults() []fault.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault.Message == "" {
		return nil
	}
	return []fault.Fault{s.fault}
}

// SavedAt returns the time when the state on disk last agreed with the source. ok is false if there is no
// saved state.
func (s *Store) SavedAt() (saved time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.savedAt, !s.savedAt.IsZero()
}

// Holdings returns the holdings from the previous run's last Commit, or nil if the Store has loaded no state.
func (s *Store) Holdings() []source.Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdings
}

// ServerAddrs returns the proven addresses of the API server or of its proxy, or nil if the Store has loaded no state.
func (s *Store) ServerAddrs() []source.ServerAddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// Recall loads the saved state only for Holdings and ServerAddrs, and writes nothing to disk.
func (s *Store) Recall() error {
	st, err := readState(s.dir, s.o.BeforeLoad)
	if err == nil && st.cluster.matches(s.o.Cluster()) {
		s.keep(st)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Run implements source.Source. Run calls Load, then Record. Without a saved state, Run calls Synced immediately. If
// the saved state is unusable, Run does not call Synced, so the host keeps its rules and waits for the API server.
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

// Loaded returns a channel that is closed when the first Load has returned.
func (s *Store) Loaded() <-chan struct{} { return s.loaded }

// HasObjects reports whether the Store has loaded a state with objects.
func (s *Store) HasObjects() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loadedAny
}

// Load returns the saved objects, or none if there is no saved state. ok is false if the saved state is
// unusable. Call Load only once, before the first Commit.
func (s *Store) Load() (objects []source.Object, ok bool) {
	defer s.loadOnce.Do(func() { close(s.loaded) })
	s.removeTemporary()
	start := time.Now()
	st, err := readState(s.dir, s.o.BeforeLoad)
	if err == nil && !st.cluster.matches(s.o.Cluster()) {
		err = fmt.Errorf("%w, %.200q", errOther, st.cluster.Server)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.keep(&state{})
		return nil, true
	case errors.Is(err, errNewer), errors.Is(err, errOther): // keep the file until the next write
		s.setFault(err.Error())
		s.log.Warn("last-known state not used", "message_id", messageid.LastKnownUnused, "error", err)
		return nil, false
	case err != nil:
		aside := s.renameDamaged()
		s.setFault(err.Error())
		s.log.Error("last-known state not used", "message_id", messageid.LastKnownUnused,
			"error", err, "set_aside", aside)
		return nil, false
	}
	if st.panicked != nil {
		s.log.Error("object panicked", "error", st.panicked, "stack", contain.Stack(st.panicked))
	}
	if st.invalid > 0 {
		s.log.Warn("skipping invalid objects in the last-known state", "objects", st.invalid)
	}
	s.keep(st)
	s.log.Info("last-known state loaded", "objects", len(st.objects), "saved", st.at, "duration", time.Since(start))
	return st.objects, true
}

func (s *Store) keep(st *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, s.savedAt, s.holdings, s.loadedAny = true, st.at, st.holdings, len(st.objects) > 0
	for _, obj := range st.objects {
		if api, ok := obj.(*source.APIServer); ok {
			s.server = append(s.server, api.ProvenAddrs...)
		}
	}
}

func (s *Store) setFault(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = s.newFault("", message)
}

func (s *Store) newFault(fix, message string) fault.Fault {
	return fault.New(FaultID, fault.Warning, fix, "%s", message).WithName(s.dir)
}

// removeTemporary removes the temporary files that interrupted writes left behind.
func (s *Store) removeTemporary() {
	stale, err := filepath.Glob(filepath.Join(s.dir, ".lastknown.*"))
	if err != nil {
		return // the path of the directory is an invalid pattern
	}
	for _, path := range stale {
		_ = os.Remove(path)
	}
}

// renameDamaged renames a damaged snapshot so that the operator can examine it, and returns the new path.
func (s *Store) renameDamaged() string {
	path := filepath.Join(s.dir, snapshotName)
	aside := path + ".damaged"
	_ = os.RemoveAll(aside) // Rename cannot replace a file with a directory
	if err := os.Rename(path, aside); err != nil {
		s.log.Error("cannot rename the damaged last-known state", "error", err)
	}
	return aside
}

// Peek returns the objects and the holdings from the last-known state in a directory, or an error if there is no usable
// state. Because a daemon may be running, Peek changes nothing on disk.
func Peek(dir string) ([]source.Object, []source.Holding, error) {
	st, err := readState(dir, nil)
	if err != nil {
		return nil, nil, err
	}
	return st.objects, st.holdings, nil
}
