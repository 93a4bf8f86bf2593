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

// ServiceTable is a ServiceList that is printed as a table, a line for each Service.
type ServiceTable struct {
	ServiceList

	// Wide adds the type, the source and counts.
	Wide bool `json:"-"`
	// Width is that of the terminal: the last column is broken into lines that fit. 0 breaks none.
	Width int `json:"-"`
	// None is printed instead of an empty table.
	None string `json:"-"`
}

// The columns that a list of addresses or ports may take. The first of them is always there.
const (
	narrowCell = 15
	wideCell   = 60
)

// WriteText prints the table. If it has one Service, all faults of that Service follow, with what to do.
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
		if f.Fix != "" { // in one line, so that it can be copied
			p.print("%-*s%s\n", len(indentation), "fix", f.Fix)
		}
	}
	return p.err
}

// indentation is the space before a fault, which has the heading.
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

// state returns the state in words, with the first reason. Those of a single Service follow the table.
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

// shortList joins the first values up to a size, and says how many there are besides: "10.96.0.10,+2".
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

// maxColumn is the most columns that a cell gets. A longer one moves the rest of its line alone.
const maxColumn = 64

// writeTable aligns all columns but the last one, which is broken into lines that fit.
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

// minWidth is the least width of a text that is broken into lines.
const minWidth = 24

// wrapped breaks a text at its spaces. There is at least one line, and no other one if the width is less than minWidth.
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
