// Package file is the source that reads manifests: YAML or JSON files with any number of documents, in the same format
// that kubectl uses. Edgeway watches the files and rereads each file that changes.
//
// Edgeway allocates no addresses or ports for a manifest: a Service must specify its ClusterIP and any NodePorts that
// its type requires. For all other fields, Edgeway applies the API server's defaults and validation. Decoding is
// strict. A misspelt field, a wrong apiVersion or a kind that does not exist in Kubernetes makes a document unusable.
// Edgeway ignores objects of other API groups and of Kubernetes kinds that it does not use. If a served object is no
// longer in any document, Edgeway reports a fault for each ignored object with the same kind, namespace and name,
// because the ignored object's apiVersion is probably misspelt. A YAML file must end with a newline. A file that once
// ended with the document end marker must keep it.
//
// Edgeway reports an unusable document as a source.Document with problems, and serves the other documents. While a
// document, a file or a path is unusable, Edgeway removes no objects. For example, Edgeway removes no Services when an
// operator renames a directory or saves a half-written file. An empty directory or file also counts as unusable if it
// contained objects before. A file system that is not mounted looks like an empty directory, and a power failure can
// leave an empty file. At startup, Edgeway treats the objects from Options.KnownObjects as objects that the files
// contained before. Once every document is readable, Edgeway removes the objects that are no longer in any document. If
// several documents contain the same object, Edgeway uses the first one, in order of path and line.
//
// A Service without a creationTimestamp counts as the youngest Service. Without a creationTimestamp, a Service cannot
// take an address or a NodePort from a Service in the cluster, but keeps the addresses and NodePorts that it already
// owns. To give a Service precedence, set its creationTimestamp.
package file

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"edgeway/daemon/files"
	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
)

// FaultID is the ID of the fault in a Source's Status.
const FaultID = "source-file"

// Options configures a Source.
type Options struct {
	// Paths lists files and directories. In a directory, Edgeway reads the files *.yaml, *.yml and *.json, and ignores
	// hidden files and subdirectories. Paths should be absolute.
	Paths []string
	// NodeName is the name of the host's Node. Edgeway ignores Nodes with other names.
	NodeName string
	// KnownObjects returns the objects that the previous run read from the files. ok is false if these objects are
	// unknown. KnownObjects may be nil.
	KnownObjects func() (objects []source.Object, ok bool)
	// NewWatcher creates the watcher for the paths. The default is files.NewWatcher.
	NewWatcher func() (*files.Watcher, error)
	Logger     *slog.Logger
	// If BeforeConvert is not nil, the Source calls it with each object's key before the conversion.
	BeforeConvert func(source.Key)
}

// Source reads manifest files. Use New to create a Source.
type Source struct {
	options Options

	mu         sync.Mutex
	status     source.Status
	positions  map[source.Key]position
	emptyPaths []string // see readResult

	// Only Run uses the following fields.
	converter       convert.Converter
	manifests       map[string]*manifest // keyed by file path
	served          map[source.Key]source.Object
	ignored         map[string]bool
	known           bool          // whether served was initialized with the previous run's objects
	recalled        bool          // whether served still contains the previous run's objects
	began           bool          // whether KnownObjects was called
	sentSynced      bool          // whether Synced was called
	slowReadTime    time.Duration // see the constant slowReadTime
	timestampMargin time.Duration // see the constant timestampMargin
}

var _ source.Source = (*Source)(nil)

// New returns a Source that has not read any file yet.
func New(o Options) *Source {
	if o.NewWatcher == nil {
		o.NewWatcher = files.NewWatcher
	}
	return &Source{
		options:         o,
		manifests:       make(map[string]*manifest),
		served:          make(map[source.Key]source.Object),
		ignored:         make(map[string]bool),
		slowReadTime:    slowReadTime,
		timestampMargin: timestampMargin,
		converter:       convert.Converter{BeforeConvert: o.BeforeConvert},
	}
}

// Name implements source.Source.
func (s *Source) Name() string { return "file" }

// Status implements source.Source. Synced becomes true when the source has read every path. LastContact is the time
// when the source last read all files without a fault.
func (s *Source) Status() source.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// ManifestsID is the ID of the Notice for a directory without manifests, and of the faults that "edgeway config check"
// finds in manifests.
const ManifestsID = "manifests"

// Faults returns a Notice for each directory without manifests. A directory without manifests does not make a read
// incomplete.
func (s *Source) Faults() []fault.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return emptyFaults(s.emptyPaths)
}

func emptyFaults(paths []string) (out []fault.Fault) {
	for _, path := range paths {
		out = append(out, fault.New(ManifestsID, fault.Notice,
			"add manifests whose names end in .yaml, .yml or .json, or rename the manifests",
			"%s: the directory contains no manifests", path))
	}
	return out
}

// Position returns the position of the document that contains an object, as "file:line". For a document that is
// currently unreadable, the result is the position in the last readable version. The result is "" if no document has
// contained the object since Edgeway started.
func (s *Source) Position(key source.Key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.positions[key]; ok {
		return at.String()
	}
	return ""
}

// These times control when Edgeway reads the files.
const (
	// quietTime is the time that the files must stay unchanged before Edgeway reads them.
	quietTime = 100 * time.Millisecond
	// maxChangeWait is the maximum time that Edgeway waits for the files to stop changing.
	maxChangeWait = time.Second
	// pollPeriod is the time between two reads if the kernel reports no change. The kernel sends no events for changes
	// behind symbolic links or on network file systems.
	pollPeriod = 30 * time.Second
	// faultyPollPeriod replaces pollPeriod while Edgeway cannot read or watch a path.
	faultyPollPeriod = 5 * time.Second
	// slowReadTime is the time without progress after which Edgeway reports a slow read. Reading 40 MiB takes several
	// seconds on a small single-board computer. Reading 100,000 Services takes a minute if other programs keep the CPUs
	// busy.
	slowReadTime = 30 * time.Second
	// timestampMargin exceeds the timestamp resolution of every file system. FAT has the coarsest resolution, 2 s.
	timestampMargin = 4 * time.Second
)

// Run implements source.Source. If the previous run's objects are known, Run calls Synced after the first read.
// Otherwise, Run calls Synced after the first read that is complete enough (see readResult.countsAsComplete). Until Run
// has called Synced, Edgeway removes no objects from the host.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	s.passKnownObjects(sink)
	w := newWatcher(&s.options)
	defer w.close()
	for {
		r := &readResult{}
		r.noteProgress()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.panicked = contain.Call(func() error {
				r.watched = w.add() // watch first, so that a change during the read triggers another read
				s.scan(r)
				return nil
			})
		}()
		if !s.await(ctx, sink, r, done) {
			return nil
		}
		contain.Rethrow(r.panicked)
		s.finish(sink, r)
		if s.known || r.countsAsComplete() {
			s.synced(sink)
		}
		wait := pollPeriod
		if !r.watched || r.hasUnreadablePath {
			wait = faultyPollPeriod
		}
		if !w.wait(ctx, wait) {
			return nil
		}
	}
}

// Read reads all files once and passes the objects to the sink. If an object is unreadable, Read passes the version
// from Options.KnownObjects.
func Read(o Options, sink source.Sink) source.Status {
	s, r := New(o), &readResult{}
	s.passKnownObjects(sink)
	r.noteProgress()
	s.scan(r)
	s.finish(sink, r)
	if s.known || r.countsAsComplete() {
		s.synced(sink)
	}
	return s.Status()
}

// await waits until the read is complete or ctx is done. A read may hang forever, for example on a network file system
// whose server is down. While a read hangs, the source serves the previous run's objects.
func (s *Source) await(ctx context.Context, sink source.Sink, r *readResult, done <-chan struct{}) bool {
	timer := time.NewTimer(s.slowReadTime)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-done:
			return true
		case <-timer.C:
			if s.known {
				s.synced(sink)
			}
			if left := s.slowReadTime - time.Since(*r.lastProgress.Load()); left > 0 {
				timer.Reset(left)
				continue
			}
			s.setFault(fault.New(FaultID, fault.Warning, "make sure that the network file system's server is running",
				"reading %s has made no progress for %s", strings.Join(s.options.Paths, ", "), s.slowReadTime))
		}
	}
}

func (s *Source) synced(sink source.Sink) {
	if !s.sentSynced {
		s.sentSynced = true
		sink.Synced()
	}
}

// passKnownObjects passes the previous run's objects to the sink. The first read without a fault removes the objects
// that are no longer in the files.
func (s *Source) passKnownObjects(sink source.Sink) {
	if s.options.KnownObjects == nil || s.began { // a panic ended an earlier Run
		return
	}
	var objects []source.Object
	objects, s.known = s.options.KnownObjects()
	s.began = true
	s.recalled = true
	for _, obj := range objects {
		switch o := obj.(type) { // no other goroutine uses obj yet
		case *source.Service:
			o.Manifest = true
		case *source.EndpointSlice:
			o.Manifest = true
		}
		s.served[obj.Key()] = obj
		sink.Upsert(obj)
	}
}

func (s *Source) finish(sink source.Sink, r *readResult) {
	s.merge(r)
	s.updateSink(sink, r)
	s.mu.Lock()
	s.status.Synced = s.status.Synced || !r.hasUnreadablePath && (s.known || r.countsAsComplete())
	for key := range s.served {
		if before, had := s.positions[key]; had && r.positions[key] == (position{}) {
			r.positions[key] = before
		}
	}
	s.positions, s.emptyPaths = r.positions, r.emptyPaths
	s.mu.Unlock()
	s.setFault(r.fault())
}

// setFault stores the latest read's fault in the status. If there is no fault, setFault also sets LastContact to the
// current time.
func (s *Source) setFault(f fault.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Fault, s.status.Partial = f, f.Message != ""
	if f.Message == "" {
		s.status.LastContact = time.Now()
	}
}
