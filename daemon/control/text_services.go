package control

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
)

// ServiceTable prints a ServiceList as a table with one line for each Service.
type ServiceTable struct {
	ServiceList

	// Wide adds columns for the type, the source, and the numbers of ServicePorts, endpoints and connections.
	Wide bool `json:"-"`
	// EmptyText is the text to print instead of an empty table.
	EmptyText string `json:"-"`
}

// maxCellWidth and maxWideCellWidth are the maximum widths, in columns, of a list of addresses or ports. Print always
// prints the first item of a list, even if it exceeds the limit.
const (
	maxCellWidth     = 15
	maxWideCellWidth = 60
)

// Print prints the table, followed by the list's faults. If the table contains a single Service, Print also prints that
// Service's faults.
func (t ServiceTable) Print(p *text.Screen) {
	faults, others := slices.Clone(t.Faults), t.Faults
	rows := [][]string{{"NAMESPACE/NAME", "ADDRESSES", "PORTS", "READY/ALL", "STATE"}}
	if t.Wide {
		rows[0] = []string{
			"NAMESPACE/NAME", "TYPE", "ADDRESSES", "PORTS", "READY/ALL", "SERVICEPORTS", "ENDPOINTS", "CONNECTIONS",
			"SOURCE", "STATE",
		}
	}
	ok := 0
	for i := range t.Items {
		item := &t.Items[i]
		rows, faults = append(rows, t.row(item)), append(faults, item.Faults...)
		if item.State == ServiceIsServed {
			ok++
		}
	}
	p.PrintVerdict(fault.WorstSeverity(faults), t.verdict(ok), "")
	if len(t.Items) > 0 {
		p.PrintTable(rows)
	}
	if len(t.Items) == 1 {
		others = faults
	}
	for _, f := range others {
		p.PrintFault(f, f.String())
	}
}

// verdict returns a summary with the number of Services that Edgeway serves without a fault.
func (t ServiceTable) verdict(ok int) string {
	out := t.EmptyText
	if n := len(t.Items); n > 0 {
		out = fmt.Sprintf("%s, %d ok", text.Count(n, "Service"), ok)
	}
	if len(t.Faults) > 0 {
		out += ", " + text.Count(len(t.Faults), "other fault")
	}
	return out
}

func (t ServiceTable) row(s *ServiceItem) []string {
	size := maxCellWidth
	if t.Wide {
		size = maxWideCellWidth
	}
	ready := fmt.Sprintf("%d/%d", s.ReadyEndpoints, s.AllEndpoints)
	row := []string{s.FullName(), shortList(s.Addresses, size), shortList(s.Ports, size), ready, t.state(s)}
	if t.Wide {
		connections := ""
		if s.Connections != nil {
			connections = strconv.FormatUint(*s.Connections, 10)
		}
		row = []string{
			row[0], s.Type, row[1], row[2], ready, strconv.Itoa(s.ServicePorts), strconv.Itoa(s.Endpoints), connections,
			s.Source, row[4],
		}
	}
	for i := range row {
		if row[i] == "" {
			row[i] = "-"
		}
	}
	return row
}

// String formats the port as kubectl does: "80/TCP", or "80:30080/TCP" with a NodePort.
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

// state returns a Service's state in words, followed by the first reason for that state. A table with a single Service
// omits the reason, because all reasons follow the table.
func (t ServiceTable) state(s *ServiceItem) string {
	out := strings.ReplaceAll(string(s.State), "-", " ")
	if len(s.Faults) == 0 || len(t.Items) == 1 {
		return out
	}
	first := s.Faults[0]
	first.Position = ""
	if first.Object.String() == "Service "+s.FullName() {
		first.Object = fault.Object{}
	}
	out += ": " + first.String()
	if more := len(s.Faults) - 1; more > 0 {
		out += fmt.Sprintf(" (and %d more)", more)
	}
	return out
}

// shortList joins values up to a maximum width and appends the number of omitted values, as in "10.96.0.10,+2".
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
