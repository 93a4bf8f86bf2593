package main

import (
	"slices"

	"edgeway/test/bench/kit"
)

type measure = kit.Measure

// The measures. "Down" is from the endpoint to the client. Rates are per second, times in seconds,
// sizes in bytes; CPU times are per byte or per connection.
const (
	down1      measure = "1 stream down"
	up1        measure = "1 stream up"
	down8      measure = "8 streams down"
	up8        measure = "8 streams up"
	rate       measure = "new connections"
	delay1     measure = "first byte, 1 client"
	delayGroup measure = "first byte, 8 clients"
	idleMemory measure = "memory of an idle connection"
)

// p99 is what 99 of 100 do not exceed; the measure itself is the median then.
func p99(m measure) measure { return m + ", p99" }

func throughputs() []measure { return []measure{down1, up1, down8, up8} }

// measures is in the order of the table.
func measures() []measure {
	all := append(throughputs(), rate, delay1, p99(delay1), delayGroup, p99(delayGroup))
	for _, m := range throughputs() {
		all = append(all, m.CPU())
	}
	return append(all, rate.CPU(), idleMemory)
}

// unit gives the divisor for a table and its name.
func unit(m measure) (float64, string) {
	switch {
	case slices.Contains(throughputs(), m):
		return 1e9, "GB/s"
	case m == rate:
		return 1, "1/s"
	case m == rate.CPU():
		return 1e-6, "µs"
	case m == idleMemory:
		return 1, "bytes"
	case m == delay1, m == p99(delay1), m == delayGroup, m == p99(delayGroup):
		return 1e-6, "µs"
	}
	return 1e-12, "ms/GB"
}

// results holds every figure of a run.
type results struct{ kit.Figures }

func (r results) add(m measure, program string, value float64) { r.Add(key(m, program), value) }

func (r results) median(m measure, program string) (float64, bool) { return r.Median(key(m, program)) }

// ratio divides our median by a peer's; false: one of them was not measured.
func (r results) ratio(m measure, peer string) (float64, bool) {
	return r.Ratio(key(m, oursName), key(m, peer))
}

func key(m measure, program string) kit.Key { return kit.Key{Measure: m, Program: program} }
