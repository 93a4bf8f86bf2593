package keyed

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

type name struct{ namespace, name string }

type thing struct {
	name
	version int
}

func (t *thing) Key() name { return t.name }

// A set does what a map does, at any size and in any order of additions and deletions.
func TestSetIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var set Set[name, *thing]
		want := map[name]*thing{}
		keys := 1 + rng.IntN(100)
		for range 400 {
			key := name{fmt.Sprint(rng.IntN(3)), fmt.Sprint(rng.IntN(keys))}
			if rng.IntN(100) < 40 {
				set.Delete(key)
				delete(want, key)
			} else {
				v := &thing{key, rng.Int()}
				set.Put(v)
				want[key] = v
			}
			if got, ok := set.Get(key); ok != (want[key] != nil) || got != want[key] {
				t.Fatalf("round %d: %v is %v, %v, not %v", round, key, got, ok, want[key])
			}
		}
		got := maps.Collect(func(yield func(name, *thing) bool) {
			for v := range set.All() {
				if !yield(v.name, v) {
					return
				}
			}
		})
		if !maps.Equal(got, want) || set.Len() != len(want) || len(slices.Collect(set.All())) != len(want) {
			t.Fatalf("round %d: %d things, not %d", round, set.Len(), len(want))
		}
		for key, v := range want {
			if got, ok := set.Get(key); !ok || got != v {
				t.Fatalf("round %d: %v is missing", round, key)
			}
		}
	}
}

func TestAllCanStop(t *testing.T) {
	var set Set[name, *thing]
	for i := range 10 {
		set.Put(&thing{name: name{"ns", fmt.Sprint(i)}})
	}
	n := 0
	for range set.All() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("%d things", n)
	}
}

// It takes at most half of the memory of a map.
func TestASetIsSmall(t *testing.T) {
	things := make([]*thing, 20_000)
	for i := range things {
		things[i] = &thing{name: name{"ns", fmt.Sprint(i)}}
	}
	size := func(fill func() any) uint64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		kept := fill()
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		return after.HeapAlloc - before.HeapAlloc
	}
	asMap := size(func() any {
		m := map[name]*thing{}
		for _, v := range things {
			m[v.name] = v
		}
		return m
	})
	asSet := size(func() any {
		var s Set[name, *thing]
		for _, v := range things {
			s.Put(v)
		}
		return &s
	})
	if runtime.KeepAlive(things); asSet > asMap/2 {
		t.Errorf("%d bytes, a map has %d", asSet, asMap)
	}
}

func BenchmarkPut(b *testing.B) {
	things := make([]*thing, 20_000)
	for i := range things {
		things[i] = &thing{name: name{"ns", fmt.Sprint("service-", i)}}
	}
	for b.Loop() {
		var s Set[name, *thing]
		for _, v := range things {
			s.Put(v)
		}
	}
}
