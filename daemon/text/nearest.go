package text

import (
	"cmp"
	"slices"
)

// Suggest returns the known word with the smallest Distance to word. near is false if more than three letters, or more
// than a third of the letters, differ.
func Suggest(word string, known []string) (best string, near bool) {
	least := min(3, (len(word)+2)/3) + 1
	for _, k := range known {
		if max(len(word)-len(k), len(k)-len(word)) >= least {
			continue
		}
		if d := Distance(word, k); d < least {
			best, least, near = k, d, true
		}
	}
	return best, near
}

// ClosestWord returns the known word with the smallest Distance to word.
func ClosestWord(word string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return cmp.Compare(Distance(word, a), Distance(word, b)) })
}

// Distance returns the smallest number of edits that turn a into b. An edit inserts, deletes or replaces a letter, or
// swaps two adjacent letters.
func Distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
