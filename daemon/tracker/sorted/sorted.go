// Package sorted replaces parts of long sorted slices. A slice that was handed out is never written
// to: snapshots and plans share what did not change.
package sorted

import (
	"slices"
	"sort"
)

// Splice gives old with the run of each key replaced by what fresh gives for it; fresh sees the key's
// index and its run in old, and must not keep or write to it. old is sorted, keys is sorted and
// without duplicates, compare orders an element relative to a key. The cost is a binary search and
// a call of fresh for each key, and one copy of old; none when no run differs: then the result is old
// itself.
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
