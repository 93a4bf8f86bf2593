package tracker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"edgeway/daemon/source"
)

// naiveTracker implements the tracker's contract with three maps and without incremental updates.
type naiveTracker struct {
	layers map[string]map[source.Key]source.Object
	hidden map[source.Key]bool
	synced bool
}

func (n *naiveTracker) put(layer string, key source.Key, obj source.Object) {
	switch {
	case layer == "lastknown" && (n.synced || n.hidden[key]):
	case obj == nil:
		delete(n.layers[layer], key)
		if layer == "kube" && !n.synced {
			delete(n.layers["lastknown"], key)
			n.hidden[key] = true
		}
	default:
		n.layers[layer][key] = obj
	}
}

func (n *naiveTracker) snapshot() []*Service {
	merged := map[source.Key]source.Object{}
	for _, layer := range []string{"lastknown", "kube", "file"} {
		for k, o := range n.layers[layer] {
			merged[k] = o
		}
	}
	var out []*Service
	for _, o := range merged {
		if s, ok := o.(*source.Service); ok {
			out = append(out, &Service{Spec: s})
		}
	}
	for _, o := range merged {
		if e, ok := o.(*source.EndpointSlice); ok {
			for _, s := range out {
				if s.Spec.Name == e.Service {
					s.Slices = append(s.Slices, e)
				}
			}
		}
	}
	for _, s := range out {
		slices.SortFunc(s.Slices, func(a, b *source.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	}
	slices.SortFunc(out, func(a, b *Service) int { return a.Name().Compare(b.Name()) })
	return out
}

func equalService(a, b *Service) bool { return a.Spec == b.Spec && slices.Equal(a.Slices, b.Slices) }

// After any sequence of events, the snapshot equals a snapshot that is built from scratch, and Changed lists exactly
// the Services that differ from the previous snapshot.
func TestRandomEventsAgreeWithRebuild(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tr, file, kube, known := threeLayers()
		sinks := map[string]source.Sink{"file": file, "kube": kube, "lastknown": known}
		model := &naiveTracker{
			layers: map[string]map[source.Key]source.Object{"file": {}, "kube": {}, "lastknown": {}},
			hidden: map[source.Key]bool{},
		}
		randomObject := func() source.Object {
			if rng.IntN(2) == 0 {
				return svc(fmt.Sprint("svc", rng.IntN(4)))
			}
			return slice(fmt.Sprint("slice", rng.IntN(4)), fmt.Sprint("svc", rng.IntN(4)))
		}
		put := func() {
			layer := []string{"file", "kube", "lastknown"}[rng.IntN(3)]
			obj := randomObject()
			if rng.IntN(3) == 0 {
				sinks[layer].Delete(obj.Key())
				model.put(layer, obj.Key(), nil)
				return
			}
			sinks[layer].Upsert(obj)
			model.put(layer, obj.Key(), obj)
		}
		known.Synced()
		file.Synced()
		prev := mustSnapshot(t, tr)
		for range 30 {
			for range rng.IntN(4) {
				put()
			}
			if rng.IntN(20) == 0 {
				kube.Synced()
				model.synced = true
				clear(model.layers["lastknown"])
			}
			next := mustSnapshot(t, tr)
			if want := model.snapshot(); !slices.EqualFunc(next.Services, want, equalService) {
				t.Fatalf("seed %d: got %v, want %v", seed, names(next), names(&Snapshot{Services: want}))
			}
			verifyChanged(t, seed, prev, next)
			prev = next
		}
	}
}

func verifyChanged(t *testing.T, seed uint64, prev, next *Snapshot) {
	t.Helper()
	var want []Name
	for i := range 4 {
		name := Name{"ns", fmt.Sprint("svc", i)}
		a, b := prev.Find(name), next.Find(name)
		if (a == nil) != (b == nil) || a != nil && !equalService(a, b) {
			want = append(want, name)
		} else if a != b {
			t.Fatalf("seed %d: %v is not shared", seed, name)
		}
	}
	if !slices.Equal(next.Changed, want) {
		t.Fatalf("seed %d: changed %v, want %v", seed, next.Changed, want)
	}
}

func TestConcurrentSources(t *testing.T) {
	tr, file, kube, known := threeLayers()
	var wg sync.WaitGroup
	for i, sink := range []source.Sink{file, kube, known} {
		wg.Go(func() {
			for j := range 200 {
				sink.Upsert(svc(fmt.Sprint(i, "-", j)))
			}
			sink.Synced()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	last := 0
	for running := true; running; {
		select {
		case <-tr.Changed():
		case <-done:
			running = false
		}
		if s, ok := tr.Snapshot(); ok {
			last = len(s.Services)
		}
		_ = tr.Stats()
	}
	if last != 400 {
		t.Errorf("%d Services in the end, want 400", last)
	}
}

func BenchmarkSnapshotOneChange(b *testing.B) {
	for _, n := range []int{100, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tr := New(Layer{Name: "kube"})
			kube := tr.Sink("kube")
			for i := range n {
				kube.Upsert(svc(fmt.Sprint("svc-", i)))
				kube.Upsert(slice(fmt.Sprint("svc-", i, "-x"), fmt.Sprint("svc-", i)))
			}
			kube.Synced()
			tr.Snapshot()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				kube.Upsert(slice("svc-50-x", "svc-50"))
				if s, _ := tr.Snapshot(); len(s.Changed) != 1 {
					b.Fatal(s.Changed)
				}
			}
		})
	}
}
