// Package sorted copies long sorted slices and replaces elements in the copies. The package never modifies the original
// slices, because snapshots and plans share them.
package sorted

import (
	"slices"
	"sort"
)

// Splice returns a copy of old in which, for each key, the elements that fresh returns replace the run of elements with
// that key. fresh receives the key's index and the key's run of elements, and must not keep or modify the run. old must
// be sorted. keys must be sorted and distinct. compare compares an element with a key. Splice needs one binary search
// and one call to fresh for each key, and one copy of old. If no run changes, Splice returns old without copying it.
func Splice[T comparable, K any](old []T, keys []K, compare func(T, K) int, fresh func(i int, run []T) []T) []T {
	var out []T
	at, copied := 0, 0
	for i, key := range keys {
		lo := at + sort.Search(len(old)-at, func(j int) bool { return compare(old[at+j], key) >= 0 })
		hi := lo
		for hi < len(old) && compare(old[hi], key) == 0 {
			hi++
		}
		at = hi
		run := fresh(i, old[lo:hi:hi])
		if slices.Equal(run, old[lo:hi]) {
			continue
		}
		if out == nil {
			out = make([]T, 0, len(old)+len(run)+len(keys))
		}
		out = append(append(out, old[copied:lo]...), run...)
		copied = hi
	}
	if out == nil {
		return old
	}
	return append(out, old[copied:]...)
}
