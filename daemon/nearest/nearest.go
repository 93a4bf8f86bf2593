// Package nearest finds the word that a person most likely meant.
package nearest

// Word gives the known word that the fewest typing mistakes lead to. It is false when none is near: a third of the
// letters may be wrong, and three at most.
func Word(word string, known []string) (best string, near bool) {
	least := min(3, (len(word)+2)/3) + 1
	for _, k := range known {
		if d := Distance(word, k); d < least {
			best, least, near = k, d, true
		}
	}
	return best, near
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
