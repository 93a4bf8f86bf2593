package testdata

import (
	"errors"
	"strings"
)

type status struct{ Message, Fix, Name string }

func searched(err error, s status) bool {
	if strings.Contains(err.Error(), "a") ||
		strings.HasPrefix(s.Message, "a") ||
		strings.Contains("ab", s.Fix) {
		text := "of " + err.Error()
		before, _, _ := strings.Cut(text, ":")
		return before == ""
	}
	why := s.Message
	return strings.Contains(s.Name, "a") || strings.HasSuffix(why, "b") || errors.Is(err, nil)
}
