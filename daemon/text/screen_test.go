package text

import (
	"errors"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
)

func drawn(width int, color bool, draw func(*Screen)) string {
	var out strings.Builder
	s := NewScreen(&out, width, color)
	draw(s)
	return out.String()
}

func TestScreen(t *testing.T) {
	t.Parallel()
	found := fault.Fault{ID: "clock", Severity: fault.Problem, Fix: "timedatectl set-ntp true  # not broken into lines"}
	for name, c := range map[string]struct {
		width int
		color bool
		draw  func(*Screen)
		want  string
	}{
		"a verdict":                {30, false, func(s *Screen) { s.PrintVerdict(fault.Problem, "drop:", "its source is not among the ranges") }, "drop: its source is not among\n  the ranges\n"},
		"the colour of a verdict":  {30, true, func(s *Screen) { s.PrintVerdict(fault.OK, "1.2.3: healthy", "") }, "\x1b[32m1.2.3: healthy\x1b[0m\n"},
		"no escape but the colour": {0, true, func(s *Screen) { s.PrintVerdict(fault.Warning, "a\x1b[2J", "b\nc\x1b") }, "\x1b[33ma\\u001b[2J\x1b[0m b c\\u001b\n"},
		"a fault":                  {31, false, func(s *Screen) { s.PrintFault(found, "an hour slow") }, "  problem   clock: an hour slow\n            fix: timedatectl set-ntp true  # not broken into lines\n"},
		"the colour of a severity": {24, true, func(s *Screen) { s.PrintFault(fault.Fault{ID: "clock", Severity: fault.Problem}, "slow") }, "  \x1b[31mproblem\x1b[0m   clock: slow\n"},
		"rows with one heading": {24, false, func(s *Screen) {
			s.PrintRow("node", "%s", "2001:db8::1, 2001:db8::2")
			s.PrintRow("node", "b")
			s.PrintRow("daemon", "c")
		}, "node       2001:db8::1,\n           2001:db8::2\n           b\ndaemon     c\n"},
		"a word that is too wide": {14, false, func(s *Screen) { s.PrintRow("a", "b /a/long/path c") }, "a          b\n           /a/long/path\n           c\n"},
		"a table": {40, false, func(s *Screen) {
			s.PrintTable([][]string{{"NAME", "STATE"}, {"a/web", "no ready endpoint: none is ready"}, {"b", "ok"}})
		}, "NAME   STATE\na/web  no ready endpoint: none is ready\nb      ok\n"},
		"a table with a long text": {34, false, func(s *Screen) {
			s.PrintTable([][]string{{"NAME", "STATE"}, {"a/web", "no ready endpoint: none is ready"}, {"b", "ok"}})
		}, "NAME   STATE\na/web  no ready endpoint: none is\n       ready\nb      ok\n"},
		"a table without room": {24, false, func(s *Screen) {
			s.PrintTable([][]string{{"NAME", "STATE"}, {"a/web", "no ready endpoint: none is ready"}})
		}, "NAME\n    STATE\na/web\n    no ready endpoint:\n    none is ready\n"},
		"no width": {0, false, func(s *Screen) { s.PrintRow("a", "%s", strings.Repeat("b ", 100)+"b") }, "a          " + strings.Repeat("b ", 100) + "b\n"},
	} {
		if got := drawn(c.width, c.color, c.draw); got != c.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestScreenReportsWriterError(t *testing.T) {
	t.Parallel()
	s := NewScreen(broken{}, 0, false)
	s.PrintLine("a")
	if s.Err() == nil {
		t.Error("no error")
	}
}
