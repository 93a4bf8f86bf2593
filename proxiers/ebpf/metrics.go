package ebpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers/nftables"
)

// counts returns the values that the programs have counted since they were loaded.
func (s *shortcuts) counts() (out [numCounters]uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		return out, s.problem
	}
	for c := range numCounters {
		if out[c], err = sum(s.objects.Counters, uint32(c)); err != nil {
			return out, fmt.Errorf("read the programs' counters: %w", err)
		}
	}
	return out, nil
}

// sum returns a counter's total over all CPUs.
func sum(counters *ebpf.Map, which uint32) (out uint64, err error) {
	var perCPU []uint64
	err = counters.Lookup(which, &perCPU)
	for _, n := range perCPU {
		out += n
	}
	return out, err
}

func socketsDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_ebpf_connections_total",
		"Connections that the BPF programs sent to an endpoint: the host's own at connect or at the first send, "+
			"others at their first packet.", []string{"call"}, nil)
}

func leftDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_ebpf_left_total",
		"Connections to Services that the BPF programs left to nftables. They do not see UDP of other hosts, "+
			"nor TCP of other hosts without ebpf.tc.", []string{"reason"}, nil)
}

func upDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_ebpf_up",
		"1 if the BPF programs are in use, 0 if nftables serves alone.", nil, nil)
}

func (p *proxier) Describe(out chan<- *prometheus.Desc) {
	nftables.Rejected{Table: p.Table}.Describe(out)
	out <- socketsDesc()
	out <- leftDesc()
	out <- upDesc()
}

func (p *proxier) Collect(out chan<- prometheus.Metric) {
	nftables.Rejected{Table: p.Table}.Collect(out)
	up := 0.0
	if p.shortcuts.isUp() {
		up = 1
	}
	out <- prometheus.MustNewConstMetric(upDesc(), prometheus.GaugeValue, up)
	counts, err := p.shortcuts.counts()
	if err != nil {
		return // the scrape omits these metrics on failure
	}
	for c, n := range counts {
		desc := leftDesc()
		if counter(c) < leftRanges {
			desc = socketsDesc()
		}
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), counter(c).String())
	}
}

func (s *shortcuts) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}
