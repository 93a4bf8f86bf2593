// Package file is the source that reads manifests: YAML or JSON files, several documents a file,
// the same objects that kubectl writes and reads. The files are watched and read again when they change.
//
// Nobody allocates anything for a manifest: a Service must say its ClusterIP, and its NodePorts where
// its type has them. Everything else has the API server's defaults, and the same checks. Decoding is
// strict: a misspelt field makes a document unusable, and so does a wrong apiVersion. Kinds that are
// not a proxy's concern are ignored.
//
// A document that cannot be used becomes a source.Document with its problems, and the others serve.
// While a file has such a document, or cannot be read at all, nothing that it held before is removed:
// a file that is half-written, or edited with a mistake, takes no Service away. What is gone from a
// file that reads well is removed. Where two documents have the same object the first one counts, by
// path and then by place.
//
// A Service without a creationTimestamp is the youngest: it takes no address and no NodePort from one of the cluster,
// and keeps what it has. One that must come first says when it was created.
package file

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
)

// Options of a Source.
type Options struct {
	// Paths are files, and folders whose files *.yaml, *.yml and *.json are read, without
	// sub-folders and hidden files. They should be absolute.
	Paths []string
	// NodeName is the name of the host's Node; other Nodes are ignored.
	NodeName string
	Logger   *slog.Logger
}

// Source is manifest files as a source. It is made by New.
type Source struct {
	paths    []string
	nodeName string
	log      *slog.Logger

	mu     sync.Mutex
	status source.Status

	// The rest is Run's.
	converter convert.Converter
	manifests map[string]*manifest // by path of the file
	served    map[source.Key]source.Object
	ignored   map[string]bool // kinds that were mentioned in the log
}

var _ source.Source = (*Source)(nil)

// New reads nothing yet.
func New(o Options) *Source {
	return &Source{
		paths:     o.Paths,
		nodeName:  o.NodeName,
		log:       o.Logger,
		manifests: make(map[string]*manifest),
		served:    make(map[source.Key]source.Object),
		ignored:   make(map[string]bool),
	}
}

// Name implements source.Source.
func (s *Source) Name() string { return "file" }

// Status implements source.Source. LastContact is when all paths could be read last.
func (s *Source) Status() source.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// The times of reading.
const (
	// quiet is how long no change must be seen before the files are read, settle how long they may
	// go on changing.
	quiet  = 100 * time.Millisecond
	settle = time.Second
	// poll finds what no event tells: changes behind symbolic links and on network file systems.
	poll = 30 * time.Second
	// faultyPoll is the same while a path cannot be read or watched.
	faultyPoll = 5 * time.Second
)

// Run implements source.Source. It says Synced after the first reading, faults or not.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	w := newWatcher(s.paths, s.log)
	defer w.close()
	for {
		// The watch comes first: what changes while the files are read is read again.
		watched := w.add()
		healthy := s.read(sink)
		s.setSynced(sink)
		wait := poll
		if !watched || !healthy {
			wait = faultyPoll
		}
		if !w.wait(ctx, wait) {
			return nil
		}
	}
}

func (s *Source) setSynced(sink source.Sink) {
	s.mu.Lock()
	first := !s.status.Synced
	s.status.Synced = true
	s.mu.Unlock()
	if first {
		sink.Synced()
	}
}

// setFault notes the outcome of a reading, and logs it when it is another than before.
func (s *Source) setFault(fault string) {
	s.mu.Lock()
	before := s.status.Err
	s.status.Err = fault
	if fault == "" {
		s.status.LastContact = time.Now()
	}
	s.mu.Unlock()
	switch {
	case fault == before:
	case fault == "":
		s.log.Info("manifests can be read again")
	default:
		s.log.Warn("manifests cannot be read, their previous objects are kept", "error", fault)
	}
}
