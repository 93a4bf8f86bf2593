package control

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
)

// ServiceTable prints a ServiceList as a table with a line for each Service.
type ServiceTable struct {
	ServiceList

	// Wide adds columns for the type, the source and the counts.
	Wide bool `json:"-"`
	// Width is the width of the terminal. The last column is broken into lines that fit. If Width is 0, no line is
	// broken.
	Width int `json:"-"`
	// None is printed instead of an empty table.
	None string `json:"-"`
}

// The maximum width of a list of addresses or ports, in columns. The first item of a list is always printed.
const (
	narrowCell = 15
	wideCell   = 60
)

// WriteText prints the table, and then the faults of the list with their fixes. If the table has one Service, all
// faults of that Service follow.
func (t ServiceTable) WriteText(w io.Writer) error {
	p := &printer{w: w}
	rows := [][]string{t.header()}
	for i := range t.Items {
		rows = append(rows, t.row(&t.Items[i]))
	}
	if len(t.Items) == 0 {
		p.print("%s\n", t.None)
	} else {
		writeTable(p, rows, t.Width)
	}
	faults := t.Faults
	if len(t.Items) == 1 {
		faults = slices.Concat(faults, t.Items[0].Faults)
	}
	for _, f := range faults {
		heading := "problem"
		for _, line := range wrapped(f.String(), t.Width-len(indentation)) {
			p.print("%-*s%s\n", len(indentation), heading, line)
			heading = ""
		}
		if f.Fix != "" { // on one line, so that the operator can copy the fix
			p.print("%-*s%s\n", len(indentation), "fix", f.Fix)
		}
	}
	return p.err
}

// indentation is the space before each line of a fault. The heading stands in this space on the first line.
const indentation = "           "

func (t ServiceTable) header() []string {
	if t.Wide {
		return []string{
			"NAMESPACE/NAME", "TYPE", "ADDRESSES", "PORTS", "READY/ALL", "SERVICEPORTS", "ENDPOINTS", "SOURCE", "STATE",
		}
	}
	return []string{"NAMESPACE/NAME", "ADDRESSES", "PORTS", "READY/ALL", "STATE"}
}

func (t ServiceTable) row(s *ServiceItem) []string {
	size := narrowCell
	if t.Wide {
		size = wideCell
	}
	var ports []string
	for _, port := range s.Ports {
		ports = append(ports, port.String())
	}
	ready := fmt.Sprintf("%d/%d", s.Ready, s.All)
	row := []string{s.FullName(), shortList(s.Addresses, size), shortList(ports, size), ready, t.state(s)}
	if t.Wide {
		row = []string{
			row[0], s.Type, row[1], row[2], ready, strconv.Itoa(s.ServicePorts), strconv.Itoa(s.Endpoints), s.Source, row[4],
		}
	}
	for i := range row {
		if row[i] == "" {
			row[i] = "-"
		}
	}
	return row
}

// String returns "80/TCP", or "80:30080/TCP" with a NodePort, as kubectl prints it.
func (p ServiceItemPort) String() string {
	port := strconv.Itoa(int(p.Port))
	switch {
	case p.Port == 0:
		port = ":" + strconv.Itoa(int(p.NodePort))
	case p.NodePort != 0:
		port += ":" + strconv.Itoa(int(p.NodePort))
	}
	return port + "/" + p.Protocol
}

// state returns the state in words, with the first reason. It leaves out the reason for a single Service, because all
// reasons follow the table.
func (t ServiceTable) state(s *ServiceItem) string {
	out := strings.ReplaceAll(string(s.State), "-", " ")
	if len(s.Faults) == 0 || len(t.Items) == 1 {
		return out
	}
	first := s.Faults[0]
	first.At = ""
	if first.Object.String() == "Service "+s.FullName() {
		first.Object = fault.Object{}
	}
	out += ": " + first.String()
	if more := len(s.Faults) - 1; more > 0 {
		out += fmt.Sprintf(" (and %d more)", more)
	}
	return out
}

// shortList joins values up to a size, and appends the number of the values left out: "10.96.0.10,+2".
func shortList[T any](values []T, size int) string {
	var out strings.Builder
	for i, v := range values {
		next := fmt.Sprint(v)
		if i > 0 && out.Len()+1+len(next) > size {
			fmt.Fprintf(&out, ",+%d", len(values)-i)
			break
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(next)
	}
	return out.String()
}

// maxColumn bounds the width of a column. A longer cell shifts only the rest of its own line.
const maxColumn = 64

// writeTable aligns all columns except the last one, and breaks the last column into lines that fit.
func writeTable(p *printer, rows [][]string, width int) {
	last := len(rows[0]) - 1
	widths := make([]int, last)
	for _, row := range rows {
		for i := range widths {
			row[i] = text.CleanLine(row[i])
			widths[i] = max(widths[i], min(utf8.RuneCountInString(row[i]), maxColumn))
		}
	}
	indent := 0
	for _, w := range widths {
		indent += w + 2
	}
	for _, row := range rows {
		start := ""
		for i, w := range widths {
			start += fmt.Sprintf("%-*s  ", w, row[i])
		}
		for _, line := range wrapped(row[last], width-indent) {
			p.print("%-*s%s\n", indent, start, line)
			start = ""
		}
	}
}

// minWidth is the smallest width at which wrapped breaks a text.
const minWidth = 24

// wrapped breaks a text into lines at its spaces. It returns at least one line, and exactly one if the width is less
// than minWidth.
func wrapped(s string, width int) []string {
	if width < minWidth {
		return []string{s}
	}
	lines := []string{""}
	for word := range strings.FieldsSeq(s) {
		switch n := len(lines) - 1; {
		case lines[n] == "":
			lines[n] = word
		case utf8.RuneCountInString(lines[n])+1+utf8.RuneCountInString(word) <= width:
			lines[n] += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
