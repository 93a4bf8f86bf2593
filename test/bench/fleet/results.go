package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"edgeway/test/bench/kit"
)

type measure = kit.Measure

// In these results, a program is a set of hosts, named after the objects that the hosts watch.
const (
	noHosts = "no hosts"
	whole   = "all Services"
	tenth   = "a tenth"
	// ownLevel names the hosts that watch all Services and have their own priority level.
	ownLevel = "all, own level"
)

func programs() []string { return []string{noHosts, whole, tenth, ownLevel} }

type phase string

const (
	atRest   phase = "at rest"
	changing phase = "changes"
	back     phase = "restart"
)

func (p phase) of(m measure) measure { return measure(p) + ": " + m }

// Times are in seconds, sizes are in bytes, and rates are per second.
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
	// recoveryTime is the time from when the API server becomes ready until all hosts have synced without errors.
	recoveryTime measure = "restart: until all hosts are in order"
	// kubectlLatency and controllerLatency are the 99th percentiles of the response times of the two clients outside
	// the fleet.
	kubectlLatency    measure = "p99 of kubectl"
	controllerLatency measure = "p99 of another controller"
)

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
			row{p.of(serverCPU), 1e-3, "ms/s"}, row{p.of(serverMemory), 1 << 20, "MiB"},
			row{p.of(kubectlLatency), 1e-3, "ms"}, row{p.of(controllerLatency), 1e-3, "ms"})
	}
	return append(all,
		row{back.of(requestsEach), 1, ""}, row{back.of(listsEach), 1, ""}, row{back.of(mostRequests), 1, ""},
		row{back.of(mostLists), 1, ""}, row{back.of(refused), 1, ""}, row{recoveryTime, 1, "s"},
		row{back.of(bytesEach), 1 << 10, "KiB"},
		row{back.of(hostCPU), 1e-3, "ms"}, row{back.of(serverCPU), 1, "s"}, row{back.of(serverMemory), 1 << 20, "MiB"},
		row{back.of(kubectlLatency), 1e-3, "ms"}, row{back.of(controllerLatency), 1e-3, "ms"})
}

type results struct{ kit.Figures }

func (r results) add(m measure, program string, value float64) {
	r.Add(kit.Key{Measure: m, Program: program}, value)
}

// print writes the results as a Markdown table, and omits programs and measures without results.
func (r results) print(w io.Writer) {
	measured := slices.DeleteFunc(programs(), func(program string) bool {
		return !slices.ContainsFunc(rows(), func(row row) bool { return r.cell(row, program) != "" })
	})
	fmt.Fprintf(w, "| the hosts watch | %s |\n| --- |%s\n", strings.Join(measured, " | "),
		strings.Repeat(" ---: |", len(measured)))
	for _, row := range rows() {
		name := string(row.measure)
		if row.unit != "" {
			name += ", " + row.unit
		}
		var cells []string
		for _, program := range measured {
			cells = append(cells, r.cell(row, program))
		}
		if strings.Join(cells, "") != "" {
			fmt.Fprintf(w, "| %s | %s |\n", name, strings.Join(cells, " | "))
		}
	}
}

func (r results) cell(row row, program string) string {
	value, ok := r.Median(kit.Key{Measure: row.measure, Program: program})
	if !ok {
		return ""
	}
	return kit.FormatShort(value / row.divisor)
}
