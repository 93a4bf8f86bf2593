package file

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"edgeway/daemon/source"
)

// reading is what came of reading all files.
type reading struct {
	panicked error // the panic of the reading
	// watched says that a change will be told of.
	watched bool
	objects map[source.Key]source.Object
	// unread says that a path could not be read, fresh that an object is of a file that could be.
	unread, fresh bool
	// faults are the first that keep the reading from being whole, and more is how many there are besides.
	faults []string
	more   int
	// kept are the Services that are served though no document says them now.
	kept []source.Key
	// last is when a file came to its end, or the reading began.
	last atomic.Pointer[time.Time]
}

// moved notes that the reading goes on.
func (r *reading) moved() { r.last.Store(new(time.Now())) }

// maxNamed is how many faults the status of the source names, and Services. The problems of the Documents have more.
const maxNamed = 3

func (r *reading) addf(format string, args ...any) {
	if len(r.faults) == maxNamed {
		r.more++
		return
	}
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *reading) whole() bool { return len(r.faults) == 0 }

// counts says that the reading may stand for all there is, though nobody knows what there was before. One that has
// faults and nothing else may not: it looks like an empty cluster.
func (r *reading) counts() bool { return r.whole() || !r.unread && r.fresh }

// String says why the reading is not whole, and what that means; empty: it is.
func (r *reading) String() string {
	if r.whole() {
		return ""
	}
	out := strings.Join(r.faults, "; ")
	if r.more > 0 {
		out += fmt.Sprintf("; and %d more", r.more)
	}
	out += "; nothing is removed meanwhile"
	if len(r.kept) > 0 {
		slices.SortFunc(r.kept, source.Key.Compare)
		var names []string
		for _, key := range r.kept[:min(len(r.kept), maxNamed)] {
			names = append(names, key.String())
		}
		out += "; kept as it was: " + strings.Join(names, ", ")
	}
	if more := len(r.kept) - maxNamed; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// merge adds all objects of all files, a Manifest for each file that has any, and a Document for each place that has
// faults.
func (s *Source) merge(r *reading) {
	r.objects = make(map[source.Key]source.Object, len(s.served))
	from := make(map[source.Key]nth, len(s.served))
	for _, path := range slices.Sorted(maps.Keys(s.manifests)) {
		m := s.manifests[path]
		out := reporter{out: r.objects}
		if m.fault != nil && !errors.Is(m.fault, errPath) {
			r.addf("%s: %v", path, m.fault)
			r.unread = r.unread || slices.Contains(s.paths, path)
			out.report(path, []fault{{message: fmt.Sprintf("the file cannot be read: %s", m.fault)}})
		}
		holds := false
		for i, d := range m.documents {
			holds = holds || len(d.objects) > 0
			r.addDocument(d, nth{path, i + 1}, m.fault != nil, from, &out)
		}
		out.rest(path)
		if holds {
			file := &source.Manifest{Name: path, Ended: m.ended}
			r.objects[file.Key()] = file
			r.fresh = r.fresh || m.fault == nil
		}
	}
	for _, path := range slices.Sorted(maps.Keys(s.manifests)) {
		for i, d := range s.manifests[path].documents {
			s.findMisspelt(r, nth{path, i + 1}, d)
		}
	}
}

// findMisspelt adds a fault for an object whose kind and name are those of an object that is served and in no document
// any more, but whose group is another one: its apiVersion is probably misspelt.
func (s *Source) findMisspelt(r *reading, at nth, d *document) {
	out := reporter{out: r.objects}
	for _, o := range d.ignored {
		for _, kind := range []source.Kind{source.KindService, source.KindEndpointSlice} {
			key := source.Key{Kind: kind, Namespace: o.namespace, Name: o.name}
			_, served := s.served[key]
			if _, there := r.objects[key]; there || !served || o.kind != kind.String() {
				continue
			}
			message := fmt.Sprintf("%.64q is not used, and %s is in no other document any more: correct it, or delete the object",
				o.version, key)
			r.addf("%s: %s", at, message)
			out.report(at.String(), []fault{{join(o.at, "apiVersion"), message}})
		}
	}
}

// advised adds to a fault what to do about it, if that is not in it.
func advised(fault, fix string) string {
	if fix == "" {
		return fault
	}
	return fault + ": " + fix
}

// nth is a document of a file; the first one is 1.
type nth struct {
	path   string
	number int
}

func (n nth) String() string { return fmt.Sprintf("%s#%d", n.path, n.number) }

// addDocument adds the objects of a document. kept says that its file cannot be read now. from is where the others are.
func (r *reading) addDocument(d *document, at nth, kept bool, from map[source.Key]nth, out *reporter) {
	faults := d.faults
	if len(faults) > 0 && !kept {
		r.addf("%s: %s", at, advised(faults[0].String(), advice(faults[0].field, faults[0].message)))
	}
	for _, obj := range d.objects {
		key := obj.Key()
		if d.broken[key] { // the version from before is better
			if !kept {
				p := obj.Problems()[0]
				r.addf("%s: %s", at, advised(p.String(), advice(p.Field, p.Message)))
			}
			out.carry(at.String(), obj.Problems())
			continue
		}
		if first, taken := from[key]; taken {
			faults = append(slices.Clip(faults),
				fault{message: fmt.Sprintf("%s is in %s already; that one counts", key, first)})
			continue
		}
		from[key], r.objects[key] = at, obj
		if kept && key.Kind == source.KindService {
			r.kept = append(r.kept, key)
		}
	}
	if len(faults) > 0 {
		out.report(at.String(), faults)
	}
	out.more += d.more
}

// reporter tells the faults of one file, up to maxFaults.
type reporter struct {
	out        map[source.Key]source.Object
	told, more int
}

// report adds a Document when there are faults.
func (r *reporter) report(place string, faults []fault) {
	n := min(len(faults), maxFaults-r.told)
	r.told += n
	r.more += len(faults) - n
	if n > 0 {
		r.add(place, faults[:n])
	}
}

// rest says how many faults were not told.
func (r *reporter) rest(path string) {
	if r.more > 0 {
		r.add(path, []fault{{message: fmt.Sprintf("… and %d more faults in this file", r.more)}})
	}
}

func (r *reporter) add(place string, faults []fault) {
	d := r.document(place)
	for _, f := range faults {
		d.Faults = append(d.Faults, source.Problem{Object: d.Key(), Field: f.field, Message: f.message})
	}
}

// carry has the Document carry problems of an object that is not served.
func (r *reporter) carry(place string, problems []source.Problem) {
	n := min(len(problems), maxFaults-r.told)
	r.told += n
	r.more += len(problems) - n
	if n > 0 {
		d := r.document(place)
		d.Faults = append(d.Faults, problems[:n]...)
	}
}

func (r *reporter) document(place string) *source.Document {
	d := &source.Document{Name: place}
	if known, ok := r.out[d.Key()].(*source.Document); ok {
		return known
	}
	r.out[d.Key()] = d
	return d
}

// keep adds what is served and in no document that can be read.
func (s *Source) keep(r *reading) {
	for key, obj := range s.served {
		if _, there := r.objects[key]; there || key.Kind == source.KindDocument {
			continue
		}
		r.objects[key] = obj
		if key.Kind == source.KindService {
			r.kept = append(r.kept, key)
		}
	}
}

// tell hands over the difference to what is served. Only a reading that is whole removes anything.
func (s *Source) tell(sink source.Sink, r *reading) {
	if !r.whole() {
		s.keep(r)
	}
	next := r.objects
	for key, obj := range next {
		old, ok := s.served[key]
		switch {
		case ok && old == obj:
		case ok && !s.recalled && reflect.DeepEqual(old, obj): // else each object would be there twice
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
