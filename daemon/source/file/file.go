// Package file is the source that reads manifests: YAML or JSON files, several documents a file,
// the same objects that kubectl writes and reads. The files are watched and read again when they change.
//
// Nobody allocates anything for a manifest: a Service must say its ClusterIP, and its NodePorts where
// its type has them. Everything else has the API server's defaults, and the same checks. Decoding is
// strict: a misspelt field makes a document unusable, and so does a wrong apiVersion or a kind that Kubernetes does not
// have. Its other kinds are ignored. So are those of other groups, unless one has the kind and the name of an object
// that is served and in no document any more. A YAML file must end with a newline, and one that ended with the document
// end marker must go on ending with it.
//
// A document that cannot be used becomes a source.Document with its problems, and the others serve.
// While a document, a file or a path cannot be used, nothing is removed: a file that is half-written, edited with a
// mistake or unreadable takes no Service away, nor does a folder that was renamed. Where there was something before, a
// folder without any file and a file without any text count among them: that is how a file system that is not mounted
// looks, and a file after a loss of power. All of this holds at the start too, by what Options.Known gives. What has no
// document any more goes once all could be read. Where two documents have the same object the first one counts, by path
// and then by place.
//
// A Service without a creationTimestamp is the youngest: it takes no address and no NodePort from one of the cluster,
// and keeps what it has. One that must come first says when it was created.
package file

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"edgeway/daemon/files"
	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

// Options of a Source.
type Options struct {
	// Paths are files, and folders whose files *.yaml, *.yml and *.json are read, without
	// sub-folders and hidden files. They should be absolute.
	Paths []string
	// NodeName is the name of the host's Node; other Nodes are ignored.
	NodeName string
	// Known gives what the files held before the start; ok is false if that is not known. Nil: it is not.
	Known func() (objects []source.Object, ok bool)
	// NewWatcher makes the watcher of the paths. Nil means files.NewWatcher.
	NewWatcher func() (*files.Watcher, error)
	Logger     *slog.Logger
	// Before is convert.Converter.Before.
	Before func(source.Key)
}

// Source is manifest files as a source. It is made by New.
type Source struct {
	paths    []string
	nodeName string
	recall   func() ([]source.Object, bool)
	inotify  func() (*files.Watcher, error)
	log      *slog.Logger

	mu     sync.Mutex
	status source.Status
	places map[source.Key]place

	// The rest is Run's.
	converter convert.Converter
	manifests map[string]*manifest // by path of the file
	served    map[source.Key]source.Object
	ignored   map[string]bool // kinds that were mentioned in the log
	known     bool            // served began with all that there was before the start
	recalled  bool            // served is still that
	began     bool            // Run took over what was known
	said      bool            // Synced
	late      time.Duration   // see the constant
	coarse    time.Duration   // likewise
}

var _ source.Source = (*Source)(nil)

// New reads nothing yet.
func New(o Options) *Source {
	if o.NewWatcher == nil {
		o.NewWatcher = files.NewWatcher
	}
	return &Source{
		paths:     o.Paths,
		nodeName:  o.NodeName,
		recall:    o.Known,
		inotify:   o.NewWatcher,
		log:       o.Logger,
		manifests: make(map[string]*manifest),
		served:    make(map[source.Key]source.Object),
		ignored:   make(map[string]bool),
		late:      late,
		coarse:    coarse,
		converter: convert.Converter{Before: o.Before},
	}
}

// Name implements source.Source.
func (s *Source) Name() string { return "file" }

// Status implements source.Source. Synced is set once every path could be read; LastContact is when the last reading
// without any fault was.
func (s *Source) Status() source.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Place returns "file:line" of the document that has an object, or had it when it could be read last. It returns "" if
// no document had it since the start.
func (s *Source) Place(key source.Key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.places[key]; ok {
		return at.String()
	}
	return ""
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
	// late is when a reading is told of in which no file has come to its end. 40 MiB take some seconds on a board, and
	// 100,000 Services take a minute where other programs keep the processors busy.
	late = 30 * time.Second
	// coarse is more than the step of any file system's clock. FAT has the longest, of 2 s.
	coarse = 4 * time.Second
)

// Run implements source.Source. It says Synced after the first reading if it is known what the files held before the
// start, and else after the first one that counts: until then nobody takes for gone what it does not have.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	s.begin(sink)
	w := newWatcher(s.paths, s.inotify, s.log)
	defer w.close()
	for {
		r := &reading{}
		r.moved()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.panicked = contain.Call(func() error {
				r.watched = w.add() // first: what changes while the files are read is read again
				s.scan(r)
				return nil
			})
		}()
		if !s.await(ctx, sink, r, done) {
			return nil
		}
		contain.Rethrow(r.panicked)
		s.finish(sink, r)
		if s.known || r.counts() {
			s.synced(sink)
		}
		wait := poll
		if !r.watched || r.unread {
			wait = faultyPoll
		}
		if !w.wait(ctx, wait) {
			return nil
		}
	}
}

// Read reads all files once into the sink. What it cannot read stays as Options.Known has it.
func Read(o Options, sink source.Sink) source.Status {
	s, r := New(o), &reading{}
	s.begin(sink)
	r.moved()
	s.scan(r)
	s.finish(sink, r)
	if s.known || r.counts() {
		s.synced(sink)
	}
	return s.Status()
}

// await waits for the end of a reading, or of ctx. A reading need not end, as with a network file system whose server
// is away: then what is known from before is served meanwhile.
func (s *Source) await(ctx context.Context, sink source.Sink, r *reading, done <-chan struct{}) bool {
	timer := time.NewTimer(s.late)
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
			if left := s.late - time.Since(*r.last.Load()); left > 0 {
				timer.Reset(left)
				continue
			}
			s.setFault(fmt.Sprintf("reading %s takes more than %s", strings.Join(s.paths, ", "), s.late),
				"start the server of the network file system")
		}
	}
}

// synced says Synced once.
func (s *Source) synced(sink source.Sink) {
	if !s.said {
		s.said = true
		sink.Synced()
	}
}

// begin hands over what there was before the start. What of it has gone goes with the first reading without a fault.
func (s *Source) begin(sink source.Sink) {
	if s.recall == nil || s.began { // a panic has ended the last Run
		return
	}
	var objects []source.Object
	objects, s.known = s.recall()
	s.began = true
	s.recalled = true
	for _, obj := range objects {
		switch o := obj.(type) { // nobody else has it yet
		case *source.Service:
			o.Manifest = true
		case *source.EndpointSlice:
			o.Manifest = true
		}
		s.served[obj.Key()] = obj
		sink.Upsert(obj)
	}
}

// finish tells the sink what came of a reading, and puts it in the status.
func (s *Source) finish(sink source.Sink, r *reading) {
	s.merge(r)
	s.tell(sink, r)
	s.mu.Lock()
	s.status.Synced = s.status.Synced || !r.unread && (s.known || r.counts())
	for key := range s.served {
		if before, had := s.places[key]; had && r.places[key] == (place{}) {
			r.places[key] = before
		}
	}
	s.places = r.places
	s.mu.Unlock()
	s.setFault(r.String(), r.fix())
}

// setFault puts the outcome of a reading in the status, and logs it when it is another than before.
func (s *Source) setFault(fault, fix string) {
	s.mu.Lock()
	before := s.status.Err
	s.status.Err, s.status.Partial, s.status.Fix = fault, fault != "", fix
	if fault == "" {
		s.status.LastContact = time.Now()
	}
	s.mu.Unlock()
	switch {
	case fault == before:
	case fault == "":
		s.log.Info("manifests read whole again")
	default:
		s.log.Warn("manifests cannot be read whole, nothing is removed", "message_id", messageid.ManifestsUnreadable,
			"error", fault, "fix", fix)
	}
}
