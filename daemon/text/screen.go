package text

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"edgeway/proxiers/fault"
)

// Screen prints the answer of a command for people. Screen cleans the text that it prints.
type Screen struct {
	out   io.Writer
	width int
	color bool
	// Verbose reports whether the output includes details for developers.
	Verbose bool

	heading string // the heading of the last Row
	err     error
}

// NewScreen returns a Screen that wraps lines at width columns. If width is 0, lines are not wrapped.
func NewScreen(out io.Writer, width int, color bool) *Screen {
	return &Screen{out: out, width: width, color: color}
}

// Err returns the first error of the writer.
func (s *Screen) Err() error { return s.err }

// Verdict prints a verdict in the colour of its severity, followed by a reason.
func (s *Screen) Verdict(worst fault.Severity, verdict, reason string) {
	s.block(colors[worst], verdict+" ", reason, 2)
}

// Line prints a formatted text.
func (s *Screen) Line(format string, args ...any) { s.block("", "", fmt.Sprintf(format, args...), 2) }

// Row prints a text with a heading. The heading is omitted if the previous row had the same heading.
func (s *Screen) Row(heading, format string, args ...any) {
	shown := heading
	if heading == s.heading {
		shown = ""
	}
	s.heading = heading
	lead := fmt.Sprintf("%-10s ", shown)
	s.block("", lead, fmt.Sprintf(format, args...), len(lead))
}

// Fault prints a fault with its fix. about describes the fault, for example with its message.
func (s *Screen) Fault(f fault.Fault, about string) {
	s.heading = ""
	lead := fmt.Sprintf("  %-9s ", f.Severity)
	s.block(colors[f.Severity], lead, f.ID+": "+about, len(lead))
	s.Fix(f.Fix)
}

// Fix prints a fix, unless the fix is "". The fix is never wrapped, because a command on several lines is hard to
// copy.
func (s *Screen) Fix(fix string) {
	if fix != "" {
		s.print(strings.Repeat(" ", 12) + "fix: " + CleanLine(fix))
	}
}

const (
	// maxColumn bounds the width of a column of a table. A longer cell shifts only the rest of its own line.
	maxColumn = 64
	// minColumn is the width that a long text in the last column needs. If less is available, the text moves to the
	// next line and is indented by ownIndent.
	minColumn = 24
	ownIndent = 4
)

// Table prints rows with aligned columns. The text of the last column is wrapped.
func (s *Screen) Table(rows [][]string) {
	last := len(rows[0]) - 1
	widths, indent := make([]int, last+1), 0
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], min(utf8.RuneCountInString(CleanLine(row[i])), maxColumn))
		}
		if i < last {
			indent += widths[i] + 2
		}
	}
	narrow := s.width > 0 && s.width-indent < min(minColumn, widths[last])
	if narrow {
		indent = ownIndent
	}
	for _, row := range rows {
		lead := ""
		for i, w := range widths[:last] {
			lead += fmt.Sprintf("%-*s  ", w, CleanLine(row[i]))
		}
		if narrow {
			s.block("", "", strings.TrimRight(lead, " "), indent)
			lead = strings.Repeat(" ", indent)
		}
		s.block("", lead, row[last], indent)
	}
}

// colors holds the colour parameter of the terminal's escape sequence for each severity: green, cyan, yellow and red.
var colors = [...]string{
	fault.OK: "32", fault.Notice: "36", fault.Warning: "33", fault.Problem: "31", fault.Unhealthy: "31",
}

// block prints a text after a coloured lead. Lines after the first are indented.
func (s *Screen) block(color, lead, text string, indent int) {
	lead = CleanLine(lead)
	for _, line := range s.wrapped(lead, CleanLine(text), indent) {
		if words := strings.TrimSpace(lead); s.color && color != "" {
			line = strings.Replace(line, words, "\x1b["+color+"m"+words+"\x1b[0m", 1)
		}
		color = ""
		s.print(strings.TrimRight(line, " "))
	}
}

// wrapped breaks a lead and its text into lines, at spaces. A word that is wider than the screen stays whole.
func (s *Screen) wrapped(lead, text string, indent int) (lines []string) {
	if s.width == 0 || utf8.RuneCountInString(lead+text) <= s.width {
		return []string{lead + text}
	}
	line, words := lead, 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case words == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > s.width:
			lines = append(lines, line)
			line = strings.Repeat(" ", indent) + word
		default:
			line += " " + word
		}
		words++
	}
	return append(lines, line)
}

// print writes a line, unless an earlier write failed.
func (s *Screen) print(line string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.out, line+"\n")
	}
}
