// Package plural puts numbers into sentences.
package plural

import "fmt"

// Of writes 1203 things as "1,203 things", and one as "1 thing".
func Of(n int, thing string) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n != 1 {
		thing += "s"
	}
	return s + " " + thing
}
