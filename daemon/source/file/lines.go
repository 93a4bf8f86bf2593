package file

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// spot is a value of a document and the line that it begins in; a field begins with its name.
type spot struct {
	line   int // 0: unknown
	fields map[string]spot
	items  []spot
}

var _ yaml.Unmarshaler = (*spot)(nil)

// UnmarshalYAML implements yaml.Unmarshaler. It never fails: what has no line gets that of what is around it.
func (s *spot) UnmarshalYAML(unmarshal func(any) error) error {
	s.line = lineOf(unmarshal)
	var fields map[label]spot
	if unmarshal(&fields) == nil {
		s.fields = make(map[string]spot, len(fields))
		for name, value := range fields {
			value.line = name.line
			s.fields[name.text] = value
		}
		return nil
	}
	_ = unmarshal(&s.items) // a scalar has none
	return nil
}

// label is the name of a field.
type label struct {
	text string
	line int
}

var _ yaml.Unmarshaler = (*label)(nil)

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *label) UnmarshalYAML(unmarshal func(any) error) error {
	l.line = lineOf(unmarshal)
	return unmarshal(&l.text)
}

// lineOf makes an error, as the library (go.yaml.in/yaml v2.4) tells lines in errors alone: nothing can be a channel.
func lineOf(unmarshal func(any) error) int {
	var nothing chan int
	err := unmarshal(&nothing)
	if err == nil { // null
		return 0
	}
	return lineIn(err.Error())
}

var lineNumber = regexp.MustCompile(`line ([0-9]+): `)

// lineIn gives the first number of a line that an error of the library names; 0: it names none.
func lineIn(text string) int {
	found := lineNumber.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	line, _ := strconv.Atoi(found[1]) // digits
	return line
}

// spots reads where everything stands in a document; the lines count from its first.
func spots(text []byte) spot {
	s := spot{line: 1}
	if err := yaml.Unmarshal(text, &s); err != nil || s.line == 0 {
		return spot{line: 1}
	}
	return s
}

// find gives the line of a field, as in "spec.ports[0].port", or of the nearest part around it that is there.
func (s spot) find(field string) int {
	line := s.line
	for field != "" {
		var step string
		step, field = cutStep(field)
		next, ok := s.child(step)
		if !ok {
			break
		}
		if s = next; s.line > 0 {
			line = s.line
		}
	}
	return line
}

func (s spot) child(step string) (spot, bool) {
	if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(s.items) {
		return s.items[n], true
	}
	next, ok := s.fields[step]
	return next, ok
}

// cutStep takes the first step of a path: "spec", or what is in brackets.
func cutStep(field string) (step, rest string) {
	if inner, ok := strings.CutPrefix(field, "["); ok {
		step, rest, _ = strings.Cut(inner, "]")
		return step, strings.TrimPrefix(rest, ".")
	}
	i := strings.IndexAny(field, ".[")
	if i < 0 {
		return field, ""
	}
	return field[:i], strings.TrimPrefix(field[i:], ".")
}
