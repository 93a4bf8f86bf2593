package main

// many is the number of hosts that the figures are carried over to.
const many = 10_000

// estimate is what a figure means for many hosts.
type estimate struct {
	row
	from measure
	// kind says what the figure is of.
	kind kind
}

type kind int

const (
	ofOne    kind = iota // a host: as many times as much
	ofAll                // all hosts: in proportion
	ofServer             // the API server: what is more than with nobody, in proportion
)

func paper() []estimate {
	var all []estimate
	for _, p := range []phase{atRest, changing} {
		all = append(all,
			estimate{row{p.of("requests"), 1, "1/s"}, p.of(requestRate), ofOne},
			estimate{row{p.of("bytes"), 1e6, "MB/s"}, p.of(byteRate), ofOne},
			estimate{row{p.of(serverCPU), 1, "cores"}, p.of(serverCPU), ofServer})
	}
	return append(all,
		estimate{row{back.of("requests"), 1, ""}, back.of(requestsEach), ofOne},
		estimate{row{back.of("requests in the busiest second"), 1, ""}, back.of(mostRequests), ofAll},
		estimate{row{back.of("bytes"), 1e9, "GB"}, back.of(bytesEach), ofOne},
		estimate{row{back.of(serverCPU), 1, "s"}, back.of(serverCPU), ofServer})
}

// onPaper carries a figure over; false: it was not measured.
func (r results) onPaper(e estimate, program string) (float64, bool) {
	value, ok := r.get(e.from, program)
	hosts, okHosts := r.get(hostsMeasure, program)
	if !ok || !okHosts {
		return 0, false
	}
	switch e.kind {
	case ofAll:
		value /= hosts
	case ofServer:
		own, ok := r.get(e.from, nobody)
		if !ok {
			return 0, false
		}
		value = max(0, value-own) / hosts
	}
	return value * many, true
}
