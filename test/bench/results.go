package main

import "edgeway/test/bench/kit"

type measure = kit.Measure

// The measures, in the order of the table. Times are in seconds, sizes in bytes.
const (
	firstSync    measure = "first sync"
	restart      measure = "restart, nothing changed"
	change       measure = "one change"
	newService   measure = "new Service"
	burst        measure = "burst of changes"
	connection   measure = "new connection"
	request      measure = "new connection and a request"
	stream       measure = "one stream"
	resident     measure = "resident memory"
	kernelMemory measure = "kernel memory"
	coldPlanned  measure = "start without API, planned"
	coldStart    measure = "start without API"
)

func measures() []measure {
	return []measure{
		firstSync, firstSync.CPU(), restart, restart.CPU(), change, change.CPU(), newService, newService.CPU(),
		burst, burst.CPU(), connection, request, stream, resident, kernelMemory, coldPlanned, coldStart,
	}
}

// unit gives the divisor for a table and its name.
func unit(m measure) (float64, string) {
	switch m {
	case resident, kernelMemory:
		return 1 << 20, "MiB"
	case connection, request:
		return 1e-6, "µs"
	case stream:
		return 1, "s/GB"
	}
	return 1e-3, "ms"
}

// results holds every figure of a run.
type results struct{ kit.Figures }

func (r results) add(m measure, services int, program string, value float64) {
	r.Add(kit.Key{Measure: m, Services: services, Program: program}, value)
}

func (r results) median(m measure, services int, program string) (float64, bool) {
	return r.Median(kit.Key{Measure: m, Services: services, Program: program})
}

// ratio divides our median by another figure's; false: one of them was not measured.
func (r results) ratio(m measure, services int, otherServices int, otherProgram string) (float64, bool) {
	return r.Ratio(
		kit.Key{Measure: m, Services: services, Program: oursName},
		kit.Key{Measure: m, Services: otherServices, Program: otherProgram},
	)
}
