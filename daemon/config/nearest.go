package config

import (
	"maps"
	"slices"
	"strings"

	"edgeway/daemon/text"
)

// nearestKey returns the known key that is most similar to an unknown key. A key with the same name in another section
// takes precedence.
func (l *loader) nearestKey(key string) string {
	known := append(slices.Sorted(maps.Keys(l.keys)), versionKey)
	name := func(key string) string { return key[strings.LastIndex(key, ".")+1:] }
	same := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return name(k) != name(key) })
	if len(same) > 0 {
		known = same
	}
	return text.ClosestWord(key, known)
}
