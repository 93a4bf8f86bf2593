package text

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"edgeway/proxiers/fault"
)

// Screen cleans a command's output and prints it as human-readable text.
type Screen struct {
	out   io.Writer
	width int
	color bool
	// Verbose reports whether the output includes details for developers.
	Verbose bool

	heading string // heading is the heading of the last row
	err     error
}

// NewScreen returns a Screen that wraps lines at width columns. If width is 0, the Screen does not wrap lines.
func NewScreen(out io.Writer, width int, color bool) *Screen {
	return &Screen{out: out, width: width, color: color}
}

// Err returns the first error that the writer returned.
func (s *Screen) Err() error { return s.err }

// PrintVerdict prints a verdict in the color of its severity, followed by a reason.
func (s *Screen) PrintVerdict(worst fault.Severity, verdict, reason string) {
	s.printBlock(colors[worst], verdict+" ", reason, 2)
}

// PrintLine prints formatted text.
func (s *Screen) PrintLine(format string, args ...any) {
	s.printBlock("", "", fmt.Sprintf(format, args...), 2)
}

// PrintRow prints text with a heading. PrintRow omits the heading if the previous row had the same heading.
func (s *Screen) PrintRow(heading, format string, args ...any) {
	shown := heading
	if heading == s.heading {
		shown = ""
	}
	s.heading = heading
	lead := fmt.Sprintf("%-10s ", shown)
	s.printBlock("", lead, fmt.Sprintf(format, args...), len(lead))
}

// PrintFault prints a fault with its fix. The second argument is the text that describes the fault, for example
// f.Message.
func (s *Screen) PrintFault(f fault.Fault, about string) {
	s.heading = ""
	lead := fmt.Sprintf("  %-9s ", f.Severity)
	s.printBlock(colors[f.Severity], lead, f.ID+": "+about, len(lead))
	s.PrintFix(f.Fix)
}

// PrintFix prints a fix, unless it is "". PrintFix never wraps lines, because a command on several lines is hard to
// copy.
func (s *Screen) PrintFix(fix string) {
	if fix != "" {
		s.print(strings.Repeat(" ", 12) + "fix: " + CleanLine(fix))
	}
}

const (
	// maxColumn is the maximum width of a table column. A longer cell shifts only the rest of its own row.
	maxColumn = 64
	// minColumn is the minimum width for long text in the last column. If less width is available, the text moves to
	// the next line, indented by ownIndent.
	minColumn = 24
	ownIndent = 4
)

// PrintTable prints rows with aligned columns. PrintTable wraps the text of the last column.
func (s *Screen) PrintTable(rows [][]string) {
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
			s.printBlock("", "", strings.TrimRight(lead, " "), indent)
			lead = strings.Repeat(" ", indent)
		}
		s.printBlock("", lead, row[last], indent)
	}
}

// colors holds the escape sequence parameter for each severity's color: green, cyan, yellow or red.
var colors = [...]string{
	fault.OK: "32", fault.Notice: "36", fault.Warning: "33", fault.Problem: "31", fault.Unhealthy: "31",
}

// printBlock prints text after a colored lead. printBlock indents all lines except the first.
func (s *Screen) printBlock(color, lead, text string, indent int) {
	lead = CleanLine(lead)
	for _, line := range Wrap(lead, CleanLine(text), s.width, indent) {
		if words := strings.TrimSpace(lead); s.color && color != "" {
			line = strings.Replace(line, words, "\x1b["+color+"m"+words+"\x1b[0m", 1)
		}
		color = ""
		s.print(strings.TrimRight(line, " "))
	}
}

// Wrap breaks a lead and its text into lines at spaces. A word that is wider than width remains whole. A width of 0
// means no limit.
func Wrap(lead, text string, width, indent int) (lines []string) {
	if width == 0 || utf8.RuneCountInString(lead+text) <= width {
		return []string{lead + text}
	}
	line, words := lead, 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case words == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = strings.Repeat(" ", indent) + word
		default:
			line += " " + word
		}
		words++
	}
	return append(lines, line)
}

func (s *Screen) print(line string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.out, line+"\n")
	}
}
