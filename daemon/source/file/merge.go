package file

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"edgeway/daemon/source"
)

// merge gives all objects of all files, and a Document for each place that has faults.
func (s *Source) merge() map[source.Key]source.Object {
	out := make(map[source.Key]source.Object, len(s.served))
	from := make(map[source.Key]string)
	paths := slices.Sorted(maps.Keys(s.manifests))
	for _, path := range paths {
		m := s.manifests[path]
		r := reporter{out: out}
		if m.fault != nil {
			r.report(path, []fault{{message: fmt.Sprintf("the file cannot be read: %s", m.fault)}})
		}
		for i, d := range m.documents {
			place := fmt.Sprintf("%s#%d", path, i+1)
			faults := d.faults
			for _, obj := range d.objects {
				key := obj.Key()
				if first, taken := from[key]; taken {
					faults = append(slices.Clip(faults), fault{message: fmt.Sprintf("%s is in %s already; that one counts", key, first)})
					continue
				}
				from[key], out[key] = place, obj
			}
			r.report(place, faults)
			r.more += d.more
		}
		r.rest(path)
	}
	for _, path := range paths {
		for _, obj := range s.manifests[path].kept {
			if _, taken := out[obj.Key()]; !taken {
				out[obj.Key()] = obj
			}
		}
	}
	return out
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
	d := &source.Document{Name: place}
	if known, ok := r.out[d.Key()].(*source.Document); ok {
		d = known
	}
	for _, f := range faults {
		d.Faults = append(d.Faults, source.Problem{Object: d.Key(), Field: f.field, Message: f.message})
	}
	r.out[d.Key()] = d
}

// tell hands over the difference to what is served.
func (s *Source) tell(sink source.Sink, next map[source.Key]source.Object) {
	for key, obj := range next {
		old, ok := s.served[key]
		switch {
		case ok && old == obj:
		case ok && reflect.DeepEqual(old, obj):
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
	s.served = next
}
