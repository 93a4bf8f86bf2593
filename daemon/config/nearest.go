package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"edgeway/daemon/text"
)

// nearest returns the known key that is most similar to an unknown key: a key of the same name in another section, or
// the key with the smallest edit distance.
func (l *loader) nearest(key string) string {
	name := key[strings.LastIndex(key, ".")+1:]
	known := append(slices.Sorted(maps.Keys(l.keys)), versionKey)
	return slices.MinFunc(known, func(a, b string) int {
		return cmp.Compare(mistakes(key, name, a), mistakes(key, name, b))
	})
}

func mistakes(key, name, known string) int {
	all := text.Distance(key, known)
	if known[strings.LastIndex(known, ".")+1:] == name {
		return min(all, 1)
	}
	return all
}
