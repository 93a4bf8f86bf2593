package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
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
	all := Distance(key, known)
	if known[strings.LastIndex(known, ".")+1:] == name {
		return min(all, 1)
	}
	return all
}

// Distance is the least number of letters to insert, delete or replace to make b of a (Levenshtein).
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
