package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"edgeway/test/bench/kit"
	"edgeway/test/bench/plot"
)

type measure = kit.Measure

// The programs, as figures call them: what the hosts watch.
const (
	nobody = "nobody"
	whole  = "all Services"
	tenth  = "a tenth"
)

func programs() []string { return []string{nobody, whole, tenth} }

// phase is a time that is measured.
type phase string

const (
	atRest   phase = "at rest"
	changing phase = "changes"
	back     phase = "restart"
)

func (p phase) of(m measure) measure { return measure(p) + ": " + m }

// The measures. Times are in seconds, sizes in bytes, and rates of a second.
const (
	hostsMeasure measure = "hosts"
	startBytes   measure = "start: bytes to a host"
	requestRate  measure = "requests of a host"
	byteRate     measure = "bytes to a host"
	hostCPU      measure = "CPU of a host"
	serverCPU    measure = "CPU of the API server"
	serverMemory measure = "memory of the API server"
	requestsEach         = requestRate
	bytesEach            = byteRate
	listsEach    measure = "lists of a host"
	refused      measure = "refused requests of all"
	mostRequests measure = "requests of all in the busiest second"
	mostLists    measure = "lists of all in the busiest second"
	// backHeard is from the moment at which the API server says that it is ready.
	backHeard measure = "restart: until all hosts are in order"
	// The requests of each second after the first, in that order.
	bySecond      measure = "restart: requests by second"
	listsBySecond measure = "restart: lists by second"
)

// row is a measure as the table has it.
type row struct {
	measure measure
	divisor float64
	unit    string
}

func rows() []row {
	all := []row{{hostsMeasure, 1, ""}, {startBytes, 1 << 10, "KiB"}}
	for _, p := range []phase{atRest, changing} {
		all = append(all,
			row{p.of(requestRate), 1.0 / 60, "1/min"}, row{p.of(byteRate), 1, "B/s"}, row{p.of(hostCPU), 1e-3, "ms/s"},
			row{p.of(serverCPU), 1e-3, "ms/s"}, row{p.of(serverMemory), 1 << 20, "MiB"})
	}
	return append(all,
		row{back.of(requestsEach), 1, ""}, row{back.of(listsEach), 1, ""}, row{back.of(mostRequests), 1, ""},
		row{back.of(mostLists), 1, ""}, row{back.of(refused), 1, ""}, row{backHeard, 1, "s"}, row{back.of(bytesEach), 1 << 10, "KiB"},
		row{back.of(hostCPU), 1e-3, "ms"}, row{back.of(serverCPU), 1, "s"}, row{back.of(serverMemory), 1 << 20, "MiB"})
}

// results holds every figure of a run.
type results struct{ kit.Figures }

func (r results) add(m measure, program string, value float64) {
	r.Add(kit.Key{Measure: m, Program: program}, value)
}

func (r results) get(m measure, program string) (float64, bool) {
	return r.Median(kit.Key{Measure: m, Program: program})
}

// print writes what was measured, and what it means for many hosts, as two tables in Markdown.
func (r results) print(w io.Writer) {
	head := func(title string) {
		fmt.Fprintf(w, "| %s | %s |\n| --- |%s\n", title, strings.Join(programs(), " | "), strings.Repeat(" ---: |", len(programs())))
	}
	head("the hosts watch")
	for _, row := range rows() {
		r.printRow(w, row, r.get)
	}
	fmt.Fprintln(w)
	head(fmt.Sprintf("on paper, for %d hosts", many))
	for _, p := range paper() {
		r.printRow(w, p.row, func(m measure, program string) (float64, bool) { return r.onPaper(p, program) })
	}
}

func (r results) printRow(w io.Writer, row row, get func(measure, string) (float64, bool)) {
	name := string(row.measure)
	if row.unit != "" {
		name += ", " + row.unit
	}
	fmt.Fprintf(w, "| %s |", name)
	for _, program := range programs() {
		cell := ""
		if value, ok := get(row.measure, program); ok {
			cell = kit.Short(value / row.divisor)
		}
		fmt.Fprintf(w, " %s |", cell)
	}
	fmt.Fprintln(w)
}

// draw shows the requests after the restart by second.
func (r results) draw() string {
	var panels []plot.Panel
	for _, m := range []measure{bySecond, listsBySecond} {
		panel := plot.Panel{Title: string(m), Linear: true}
		for _, program := range []string{whole, tenth} {
			line := plot.Line{Name: program}
			for i, n := range r.Figures[kit.Key{Measure: m, Program: program}] {
				line.Points = append(line.Points, plot.Point{X: float64(i), Y: n})
			}
			panel.Lines = append(panel.Lines, line)
		}
		panels = append(panels, panel)
	}
	hosts, _ := r.get(hostsMeasure, whole)
	return plot.SVG(fmt.Sprintf("What %.0f hosts ask of an API server that comes back", hosts), panels)
}

func (r results) savePlot(path string) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, []byte(r.draw()), 0o644); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}
