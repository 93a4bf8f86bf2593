package sorted

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct{ key, value int }

func compareItem(a item, key int) int { return cmp.Compare(a.key, key) }

// For random input, Splice returns the same result as building the slice from maps, and does not modify its arguments.
func TestSpliceAgreesWithRebuild(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	randomRun := func(key int) (run []item) {
		for v := range rng.IntN(3) {
			run = append(run, item{key, rng.IntN(2)*10 + v})
		}
		return run
	}
	for range 5000 {
		runs := map[int][]item{}
		var old []item
		for key := range rng.IntN(12) {
			runs[key] = randomRun(key)
			old = append(old, runs[key]...)
		}
		var keys []int
		replaced := map[int][]item{}
		for key := range 14 {
			if rng.IntN(3) == 0 {
				keys = append(keys, key)
				replaced[key] = randomRun(key)
			}
		}
		before := slices.Clone(old)
		got := Splice(old, keys, compareItem, func(i int, run []item) []item {
			if !slices.Equal(run, runs[keys[i]]) {
				t.Fatalf("run of %d: got %v, want %v", keys[i], run, runs[keys[i]])
			}
			return replaced[keys[i]]
		})
		if !slices.Equal(old, before) {
			t.Fatalf("old was written to: %v, was %v", old, before)
		}
		var want []item
		for key := range 14 {
			if r, ok := replaced[key]; ok {
				want = append(want, r...)
			} else {
				want = append(want, runs[key]...)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("Splice(%v, %v) = %v, want %v", old, keys, got, want)
		}
	}
}

func TestSpliceSharesUnchangedParts(t *testing.T) {
	old := []item{{1, 1}, {2, 1}, {2, 2}, {3, 1}}
	same := func(_ int, run []item) []item { return slices.Clone(run) }
	got := Splice(old, []int{0, 2, 3, 9}, compareItem, same)
	if &got[0] != &old[0] {
		t.Error("an unchanged slice was copied")
	}
}
