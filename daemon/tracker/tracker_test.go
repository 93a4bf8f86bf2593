package tracker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func svc(name string) *source.Service { return &source.Service{Namespace: "ns", Name: name} }

func slice(name, service string) *source.EndpointSlice {
	return &source.EndpointSlice{Namespace: "ns", Name: name, Service: service, Family: plan.IPv4}
}

// threeLayers returns a tracker with the daemon's layers.
func threeLayers() (t *Tracker, file, kube, known source.Sink) {
	t = New(Layer{Name: "file"}, Layer{Name: "kube"}, Layer{Name: "lastknown", FallbackFor: "kube"})
	return t, t.Sink("file"), t.Sink("kube"), t.Sink("lastknown")
}

func mustSnapshot(t *testing.T, tr *Tracker) *Snapshot {
	t.Helper()
	s, ok := tr.Snapshot()
	if !ok {
		t.Fatal("the gate is closed")
	}
	return s
}

// names lists the Services of a snapshot in the form "name[slice slice]".
func names(s *Snapshot) []string {
	out := []string{}
	for _, v := range s.Services {
		sl := []string{}
		for _, e := range v.Slices {
			sl = append(sl, e.Name)
		}
		out = append(out, fmt.Sprint(v.Spec.Name, sl))
	}
	return out
}

func wantNames(t *testing.T, s *Snapshot, want ...string) {
	t.Helper()
	if got := names(s); !slices.Equal(got, want) {
		t.Errorf("services: got %v, want %v", got, want)
	}
}

func wantChanged(t *testing.T, s *Snapshot, want ...string) {
	t.Helper()
	got := []string{}
	for _, n := range s.Changed {
		got = append(got, n.Name)
	}
	if !slices.Equal(got, want) || s.All {
		t.Errorf("changed: got %v (all: %v), want %v", got, s.All, want)
	}
}

func announced(tr *Tracker) bool {
	select {
	case <-tr.Changed():
		return true
	default:
		return false
	}
}

func TestGate(t *testing.T) {
	type step struct {
		layer string
		obj   source.Object // if obj is nil, the event calls Synced
		open  bool          // open reports whether the tracker returns a snapshot after the event
	}
	for name, steps := range map[string][]step{
		"every primary synced": {{"kube", svc("a"), false}, {"kube", nil, false}, {"file", nil, true}},
		"a fallback with objects stands in": {
			{"file", nil, false}, {"lastknown", svc("a"), false}, {"lastknown", nil, true},
		},
		"an empty fallback stands in beside a synced primary": {{"lastknown", nil, false}, {"file", nil, true}},
		"a fallback that did not sync does not stand in":      {{"file", nil, false}, {"lastknown", svc("a"), false}},
	} {
		t.Run(name, func(t *testing.T) {
			tr, _, _, _ := threeLayers()
			for i, s := range steps {
				if s.obj != nil {
					tr.Sink(s.layer).Upsert(s.obj)
				} else {
					tr.Sink(s.layer).Synced()
				}
				if got := announced(tr); got != s.open {
					t.Errorf("step %d: announced %v, want %v", i, got, s.open)
				}
				if _, ok := tr.Snapshot(); ok != s.open {
					t.Fatalf("step %d: open %v, want %v", i, ok, s.open)
				}
			}
		})
	}
}

// The channel from Changed receives a value when the last source has listed all objects, even if no object has changed,
// because the snapshot is then complete.
func TestSnapshotIsCompleteAfterAllLists(t *testing.T) {
	tr, file, kube, known := threeLayers()
	file.Synced()
	known.Upsert(svc("a"))
	known.Synced()
	if s := mustSnapshot(t, tr); !announced(tr) || s.Complete {
		t.Errorf("with a last-known state: complete %t", s.Complete)
	}
	kube.Upsert(svc("a"))
	announced(tr)
	kube.Synced()
	if s := mustSnapshot(t, tr); !announced(tr) || !s.Complete {
		t.Errorf("with all lists: complete %t", s.Complete)
	}
}

func TestGateStaysClosedWithEmptyFallback(t *testing.T) {
	tr := New(Layer{Name: "kube"}, Layer{Name: "lastknown", FallbackFor: "kube"})
	tr.Sink("lastknown").Synced()
	if _, ok := tr.Snapshot(); ok {
		t.Fatal("nothing is known, yet the gate is open")
	}
	tr.Sink("kube").Synced()
	if s := mustSnapshot(t, tr); !s.All || s.Generation != 1 {
		t.Errorf("first snapshot: all %v, generation %d", s.All, s.Generation)
	}
}

func TestHighestLayerServes(t *testing.T) {
	tr, file, kube, known := threeLayers()
	inFile, inKube, inKnown := svc("a"), svc("a"), svc("a")
	known.Upsert(inKnown)
	kube.Upsert(inKube)
	file.Upsert(inFile)
	kube.Synced()
	file.Synced()
	if s := mustSnapshot(t, tr); s.Find(Name{"ns", "a"}).Spec != inFile {
		t.Error("the file's Service does not serve")
	}
	file.Delete(inFile.Key())
	s := mustSnapshot(t, tr)
	if s.Find(Name{"ns", "a"}).Spec != inKube {
		t.Error("the API server's Service does not serve")
	}
	wantChanged(t, s, "a")
	kube.Delete(inKube.Key())
	s = mustSnapshot(t, tr)
	wantNames(t, s)
	wantChanged(t, s, "a")
	if s.Find(Name{"ns", "a"}) != nil {
		t.Error("a deleted Service is found")
	}
}

func TestFallbackServesUntilPrimarySynced(t *testing.T) {
	tr, file, kube, known := threeLayers()
	for _, n := range []string{"gone", "deleted", "stays"} {
		known.Upsert(svc(n))
	}
	known.Synced()
	file.Synced()
	wantNames(t, mustSnapshot(t, tr), "deleted[]", "gone[]", "stays[]")

	kube.Upsert(svc("stays"))
	kube.Upsert(svc("deleted"))
	wantNames(t, mustSnapshot(t, tr), "deleted[]", "gone[]", "stays[]")

	kube.Delete(svc("deleted").Key())
	s := mustSnapshot(t, tr)
	wantNames(t, s, "gone[]", "stays[]")
	wantChanged(t, s, "deleted")

	known.Upsert(svc("deleted")) // the fallback may add an object after the primary layer has deleted the object
	wantNames(t, mustSnapshot(t, tr), "gone[]", "stays[]")

	kube.Synced()
	s = mustSnapshot(t, tr)
	wantNames(t, s, "stays[]")
	wantChanged(t, s, "gone")

	known.Upsert(svc("late"))
	wantNames(t, mustSnapshot(t, tr), "stays[]")
	if n := len(tr.layer("lastknown").objects); n != 0 {
		t.Errorf("%d objects are left in the fallback", n)
	}
}

func TestSlicesPrecedeAndMoveBetweenServices(t *testing.T) {
	tr := New(Layer{Name: "kube"})
	kube := tr.Sink("kube")
	kube.Synced()
	kube.Upsert(slice("s2", "a"))
	kube.Upsert(slice("s1", "a"))
	s := mustSnapshot(t, tr)
	wantNames(t, s)

	kube.Upsert(svc("a"))
	kube.Upsert(svc("b"))
	s = mustSnapshot(t, tr)
	wantNames(t, s, "a[s1 s2]", "b[]")
	before := s.Services[0]

	kube.Upsert(slice("s1", "b"))
	s = mustSnapshot(t, tr)
	wantNames(t, s, "a[s2]", "b[s1]")
	wantChanged(t, s, "a", "b")
	if len(before.Slices) != 2 {
		t.Error("a snapshot that was handed out has changed")
	}

	kube.Delete(svc("a").Key())
	wantNames(t, mustSnapshot(t, tr), "b[s1]")
	kube.Upsert(svc("a"))
	wantNames(t, mustSnapshot(t, tr), "a[s2]", "b[s1]")
}

func TestSnapshotSharesUnchangedParts(t *testing.T) {
	tr := New(Layer{Name: "kube"})
	kube := tr.Sink("kube")
	a := svc("a")
	kube.Upsert(a)
	kube.Upsert(svc("b"))
	kube.Synced()
	first := mustSnapshot(t, tr)
	second := mustSnapshot(t, tr)
	if second.Generation != 2 || &second.Services[0] != &first.Services[0] {
		t.Error("a snapshot without changes does not share the Services")
	}
	wantChanged(t, second)

	kube.Upsert(slice("s", "b"))
	third := mustSnapshot(t, tr)
	wantChanged(t, third, "b")
	if third.Services[0] != first.Services[0] || third.Services[1] == first.Services[1] {
		t.Error("not exactly the changed Service was replaced")
	}

	kube.Delete(a.Key())
	kube.Upsert(a)
	wantChanged(t, mustSnapshot(t, tr))
}

func TestChangesAreCoalesced(t *testing.T) {
	tr := New(Layer{Name: "kube"})
	kube := tr.Sink("kube")
	kube.Synced()
	announced(tr)
	for i := range 100 {
		kube.Upsert(svc(fmt.Sprint(i)))
	}
	if !announced(tr) || announced(tr) {
		t.Error("a hundred changes are not announced exactly once")
	}
	kube.Delete(svc("no such").Key())
	kube.Synced()
	if announced(tr) {
		t.Error("what changes nothing was announced")
	}
}

func TestNodeAndServiceCIDRs(t *testing.T) {
	tr := New(Layer{Name: "kube"})
	kube := tr.Sink("kube")
	kube.Synced()
	if s := mustSnapshot(t, tr); s.Node != nil || len(s.ServiceCIDRs) != 0 {
		t.Error("something from nothing")
	}
	node, c1, c2 := &source.Node{Name: "n"}, &source.ServiceCIDR{Name: "1"}, &source.ServiceCIDR{Name: "2"}
	kube.Upsert(c2)
	kube.Upsert(node)
	kube.Upsert(c1)
	s := mustSnapshot(t, tr)
	if s.Node != node || !slices.Equal(s.ServiceCIDRs, []*source.ServiceCIDR{c1, c2}) {
		t.Errorf("node %v, ServiceCIDRs %v", s.Node, s.ServiceCIDRs)
	}
	kube.Delete(c1.Key())
	kube.Delete(node.Key())
	s = mustSnapshot(t, tr)
	if s.Node != nil || !slices.Equal(s.ServiceCIDRs, []*source.ServiceCIDR{c2}) {
		t.Errorf("after deletion: node %v, ServiceCIDRs %v", s.Node, s.ServiceCIDRs)
	}
}

func TestProblemsOfServedObjects(t *testing.T) {
	tr, file, kube, _ := threeLayers()
	problem := func(obj source.Key, field string) fault.Fault { return fault.Fault{Object: obj, Field: field} }
	a, b := svc("a"), svc("b")
	a.Faults = []fault.Fault{problem(a.Key(), "y"), problem(a.Key(), "x")}
	b.Faults = []fault.Fault{problem(b.Key(), "z")}
	// The manifest document that should define the Service b is unusable, so a Document holds the fault of b.
	doc := &source.Document{Name: "f.yaml#2", Flaws: source.Flaws{Faults: []fault.Fault{problem(b.Key(), "a")}}}
	kube.Upsert(b)
	kube.Upsert(a)
	kube.Synced()
	file.Upsert(doc)
	file.Synced()
	check := func(want ...string) {
		t.Helper()
		got := []string{}
		for _, p := range mustSnapshot(t, tr).Problems {
			got = append(got, p.Object.Name+"."+p.Field)
		}
		if !slices.Equal(got, want) {
			t.Errorf("problems: got %v, want %v", got, want)
		}
	}
	check("a.x", "a.y", "b.a", "b.z")
	file.Upsert(svc("b")) // the valid Service in the file layer hides the Service in the kube layer
	check("a.x", "a.y", "b.a")
	kube.Delete(a.Key())
	check("b.a")
	file.Delete(doc.Key())
	file.Delete(b.Key())
	check("b.z")
}

func TestTriggers(t *testing.T) {
	tr := New(Layer{Name: "kube"})
	kube := tr.Sink("kube")
	kube.Synced()
	now := time.Now().Add(time.Second)
	triggered := func(name string, at time.Time) *source.EndpointSlice {
		s := slice(name, "a")
		s.TriggerTime = at
		return s
	}
	kube.Upsert(slice("untimed", "a"))
	kube.Upsert(triggered("old", now.Add(-time.Hour)))
	kube.Upsert(triggered("new", now))
	kube.Upsert(triggered("new", now)) // a change with the same trigger time
	kube.Upsert(triggered("new", now.Add(time.Minute)))
	if got := mustSnapshot(t, tr).Triggers; !slices.Equal(got, []time.Time{now, now.Add(time.Minute)}) {
		t.Errorf("triggers: %v", got)
	}
	if got := mustSnapshot(t, tr).Triggers; len(got) != 0 {
		t.Errorf("triggers were given twice: %v", got)
	}
	for i := range 2 * maxTriggers {
		kube.Upsert(triggered(fmt.Sprint(i), now))
	}
	if got := len(mustSnapshot(t, tr).Triggers); got != maxTriggers {
		t.Errorf("%d triggers are kept, the bound is %d", got, maxTriggers)
	}
}

func TestStats(t *testing.T) {
	tr, file, kube, _ := threeLayers()
	kube.Upsert(svc("a"))
	kube.Upsert(slice("s", "a"))
	kube.Synced()
	file.Synced()
	stats := tr.Stats()
	if l := stats.Layers[1]; l.Name != "kube" || !l.Synced || l.Objects[source.KindService] != 1 ||
		l.Objects[source.KindEndpointSlice] != 1 {
		t.Errorf("layer: %+v", l)
	}
	if stats.Services != (Changes{1, 1}) || stats.Endpoints != (Changes{1, 1}) {
		t.Errorf("changes: %+v", stats)
	}
	mustSnapshot(t, tr)
	kube.Delete(svc("a").Key())
	if stats = tr.Stats(); stats.Services != (Changes{2, 1}) || stats.Endpoints != (Changes{1, 0}) {
		t.Errorf("changes after a snapshot: %+v", stats)
	}
}

func TestWrongLayersPanic(t *testing.T) {
	for name, wrong := range map[string]func(){
		"twice":            func() { New(Layer{Name: "a"}, Layer{Name: "a"}) },
		"unknown primary":  func() { New(Layer{Name: "a", FallbackFor: "b"}) },
		"sink of no layer": func() { New().Sink("a") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			wrong()
		})
	}
}
