package text

import "fmt"

// Count formats a number with its noun, and adds "s" to the noun unless n is 1. For example, Count(1203, "thing")
// returns "1,203 things".
func Count(n int, thing string) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n != 1 {
		thing += "s"
	}
	return s + " " + thing
}

// WithPrefix returns the prefix followed by s, or "" if s is empty.
func WithPrefix(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
