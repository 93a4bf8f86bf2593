package text

import (
	"fmt"
	"strings"
)

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

// FirstOf returns the first three values as text, with a count of the others.
func FirstOf[T any](list []T) string {
	const few = 3
	var out []string
	for _, v := range list[:min(few, len(list))] {
		out = append(out, fmt.Sprint(v))
	}
	text := strings.Join(out, ", ")
	if more := len(list) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
