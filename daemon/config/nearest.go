package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"edgeway/daemon/nearest"
)

// nearest gives the known key that a person most likely meant: one of the same name in another
// section, else the one that the fewest typing mistakes lead to.
func (l *loader) nearest(key string) string {
	name := key[strings.LastIndex(key, ".")+1:]
	known := append(slices.Sorted(maps.Keys(l.keys)), versionKey)
	return slices.MinFunc(known, func(a, b string) int {
		return cmp.Compare(mistakes(key, name, a), mistakes(key, name, b))
	})
}

func mistakes(key, name, known string) int {
	all := nearest.Distance(key, known)
	if known[strings.LastIndex(known, ".")+1:] == name {
		return min(all, 1)
	}
	return all
}
