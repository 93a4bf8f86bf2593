package file

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

type readResult struct {
	panicked  error
	watched   bool
	objects   map[source.Key]source.Object
	positions map[source.Key]position
	paths     []fault.Fault // the faults of unreadable paths
	// emptyPaths lists the directories that contain no manifests and from which Edgeway serves no objects.
	emptyPaths []string
	// hasUnreadablePath reports whether a path was unreadable. hasReadableObject reports whether any object comes from
	// a readable file.
	hasUnreadablePath, hasReadableObject bool
	// faults lists the first maxNamed reasons why the read is incomplete. omittedFaults is the number of other reasons.
	faults        []fault.Fault
	omittedFaults int
	// keptServices lists the Services that Edgeway still serves although no readable document contains them.
	keptServices []source.Key
	// lastProgress is the time when the read last finished a file. Until the read has finished a file, lastProgress is
	// the time when the read started.
	lastProgress atomic.Pointer[time.Time]
}

// noteProgress stores the current time in lastProgress.
func (r *readResult) noteProgress() { r.lastProgress.Store(new(time.Now())) }

// maxNamed limits the number of faults and the number of Services that the source's status names. The Document objects
// list the other faults.
const maxNamed = 3

func (r *readResult) add(p fault.Fault) {
	if len(r.faults) == maxNamed {
		r.omittedFaults++
		return
	}
	r.faults = append(r.faults, p)
}

func (r *readResult) whole() bool { return len(r.faults) == 0 }

// countsAsComplete reports whether a read can count as complete even if the previous run's objects are unknown. A read
// with faults and without objects cannot count as complete, because its result looks like an empty cluster.
func (r *readResult) countsAsComplete() bool {
	return r.whole() || !r.hasUnreadablePath && r.hasReadableObject
}

// fault explains why the read is incomplete and which Services Edgeway keeps. The result is the zero Fault if the read
// is complete.
func (r *readResult) fault() fault.Fault {
	if r.whole() {
		return fault.Fault{}
	}
	var texts []string
	for _, f := range r.faults {
		f.Fix = ""
		texts = append(texts, f.String())
	}
	out := strings.Join(texts, "; ")
	if r.omittedFaults > 0 {
		out += fmt.Sprintf("; and %d more", r.omittedFaults)
	}
	out += "; Edgeway removes no Service until the faults are corrected"
	if len(r.keptServices) > 0 {
		slices.SortFunc(r.keptServices, source.Key.Compare)
		var names []string
		for _, key := range r.keptServices[:min(len(r.keptServices), maxNamed)] {
			names = append(names, key.String())
		}
		out += "; Edgeway keeps the last version of " + strings.Join(names, ", ")
	}
	if more := len(r.keptServices) - maxNamed; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return fault.New(FaultID, fault.Warning, cmp.Or(r.faults[0].Fix, "edgeway config check"), "%s", out)
}

// merge adds the objects of all files to the result. merge also adds a Manifest for each file with objects and a
// Document for each position with faults.
func (s *Source) merge(r *readResult) {
	r.objects = make(map[source.Key]source.Object, len(s.served))
	r.positions = make(map[source.Key]position, len(s.served))
	for _, path := range slices.Sorted(maps.Keys(s.manifests)) {
		m := s.manifests[path]
		out := reporter{out: r.objects}
		if m.fault != nil && !errors.Is(m.fault, errPath) {
			unread := unreadable(path, m.fault)
			r.add(unread)
			r.hasUnreadablePath = r.hasUnreadablePath || slices.Contains(s.options.Paths, path)
			out.report(unread)
		}
		holds := false
		for _, d := range m.documents {
			holds = holds || len(d.objects) > 0
			r.addDocument(d, position{path, d.line}, m.fault != nil, &out)
		}
		out.rest(path)
		if holds {
			file := &source.Manifest{Name: path, Ended: m.ended}
			r.objects[file.Key()] = file
			r.hasReadableObject = r.hasReadableObject || m.fault == nil
		}
	}
	for _, path := range slices.Sorted(maps.Keys(s.manifests)) {
		for _, d := range s.manifests[path].documents {
			s.findMisspelt(r, position{path, d.line}, d)
		}
	}
}

// findMisspelt adds a fault for each ignored object that appears to replace a served object: both have the same kind,
// namespace and name, and the served object is no longer in any document. The apiVersion of the ignored object is
// probably misspelt.
func (s *Source) findMisspelt(r *readResult, at position, d *document) {
	out := reporter{out: r.objects}
	for _, o := range d.ignored {
		for _, kind := range []string{source.KindService, source.KindEndpointSlice} {
			key := source.Key{Kind: kind, Namespace: o.namespace, Name: o.name}
			_, served := s.served[key]
			if _, there := r.objects[key]; there || !served || o.kind != kind {
				continue
			}
			misspelt := source.FaultOf(source.Key{}, join(o.at, "apiVersion"),
				"the version %.64q is unknown, and no other document contains %s", o.version, key)
			misspelt.Position, misspelt.Fix = at.String(), "correct the apiVersion, or delete the object"
			r.add(misspelt)
			out.report(misspelt)
		}
	}
}

type position struct {
	path string
	line int
}

func (p position) String() string { return formatPosition(p.path, p.line) }

// addDocument adds a document's objects and faults to the result. kept reports whether the document's file is currently
// unreadable.
func (r *readResult) addDocument(d *document, at position, kept bool, out *reporter) {
	faults := d.faults
	if len(faults) > 0 && !kept {
		r.add(faults[0])
	}
	for _, obj := range d.objects {
		key := obj.Key()
		if d.invalidObjects[key] { // Edgeway serves the object's previous version instead
			if !kept {
				r.add(obj.Problems()[0])
			}
			out.report(obj.Problems()...)
			continue
		}
		if first, taken := r.positions[key]; taken {
			double := source.FaultOf(source.Key{}, "", "%s is already in %s, which takes precedence", key, first)
			double.Position, double.Fix = at.String(), "remove one of the duplicates"
			faults = append(slices.Clip(faults), double)
			continue
		}
		r.positions[key], r.objects[key] = at, obj
		if kept && key.Kind == source.KindService {
			r.keptServices = append(r.keptServices, key)
		}
	}
	out.report(faults...)
	out.more += d.omittedFaults
}

type reporter struct {
	out        map[source.Key]source.Object
	told, more int
}

func (r *reporter) report(faults ...fault.Fault) {
	n := min(len(faults), maxFaults-r.told)
	r.told += n
	r.more += len(faults) - n
	for _, f := range faults[:n] {
		r.add(f)
	}
}

func (r *reporter) rest(path string) {
	if r.more > 0 {
		f := source.FaultOf(source.Key{}, "", "the file has %d more faults", r.more)
		f.Position = path
		r.add(f)
	}
}

func (r *reporter) add(f fault.Fault) {
	d := &source.Document{Name: f.Position}
	if known, ok := r.out[d.Key()].(*source.Document); ok {
		d = known
	}
	r.out[d.Key()] = d
	if f.Object == (source.Key{}) {
		f.Object = d.Key()
	}
	d.Faults = append(d.Faults, f)
}

// keepServed adds to the result the served objects that no readable document contains.
func (s *Source) keepServed(r *readResult) {
	for key, obj := range s.served {
		if _, there := r.objects[key]; there || key.Kind == source.KindDocument {
			continue
		}
		r.objects[key] = obj
		if key.Kind == source.KindService {
			r.keptServices = append(r.keptServices, key)
		}
	}
}

// updateSink passes the differences between the result and the served objects to the sink. Only a complete read
// removes objects.
func (s *Source) updateSink(sink source.Sink, r *readResult) {
	if !r.whole() {
		s.keepServed(r)
	}
	next := r.objects
	for key, obj := range next {
		old, ok := s.served[key]
		switch {
		case ok && old == obj:
		case ok && !s.recalled && reflect.DeepEqual(old, obj): // keeping a recalled object would store it twice
			next[key] = old
		default:
			sink.Upsert(obj)
		}
	}
	for key := range s.served {
		if _, ok := next[key]; !ok {
			sink.Delete(key)
		}
	}
	s.served, s.recalled = next, false
}
