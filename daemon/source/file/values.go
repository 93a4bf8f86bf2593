package file

import "fmt"

const (
	// maxValues is how many values a file may have. Each takes up to 600 bytes while the file is read, however short
	// it is. A Service with its EndpointSlice, as kubectl prints them, has some 150.
	maxValues = 400_000
	// documentValues is what a document counts for: it costs something of its own.
	documentValues = 10
)

var errValues = fmt.Errorf("it has more than %d values (a document counts as %d): split it", maxValues, documentValues)

// countValues counts the characters of YAML and JSON that separate values, or begin a list or map. One that stands in a text
// may count as well; no more than two values, those of {a,b}, are without one of their own.
func countValues(text []byte) (n int) {
	// blank is what comes after an indicator: white space of any alphabet, or the end.
	blank := func(i int) bool { return i >= len(text) || text[i] <= ' ' || text[i] >= 0x80 }
	for i, b := range text {
		switch b {
		case ',', '[', '{', '?', '&', '*':
			n++
		case '-':
			if blank(i + 1) {
				n++
			}
		case ':': // not those in an address
			if blank(i+1) || i == 0 || blank(i-1) || isBracket(text[i-1]) {
				n++
			}
		}
	}
	return n
}

// isBracket: a colon after it separates, whatever follows.
func isBracket(b byte) bool {
	return b == '"' || b == '\'' || b == ']' || b == '}' || b == '[' || b == '{' || b == ','
}
