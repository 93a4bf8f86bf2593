package ebpf

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
)

// counts returns the values of the programs' counters. Counting starts when Edgeway creates the counter map.
func (s *shortcuts) counts() (out [numCounters]uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		return out, s.problem
	}
	for c := range numCounters {
		var perCPU []uint64
		if err = s.objects.Counters.Lookup(uint32(c), &perCPU); err != nil {
			return out, fmt.Errorf("counters of the BPF programs: %w", err)
		}
		out[c] = total(perCPU)
	}
	return out, nil
}

func total(perCPU []uint64) (out uint64) {
	for _, n := range perCPU {
		out += n
	}
	return out
}

// Connections implements proxiers.Counter. Connections adds the BPF programs' counts, because nftables does not count
// the connections that used the shortcut.
func (p *proxier) Connections(from *plan.Plan, add func(*plan.ServicePort, plan.FrontendKind, uint64)) error {
	if err := nftables.Connections(p.Table, from, add); err != nil {
		return err
	}
	s := p.shortcuts
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil || s.mapState == nil {
		return nil
	}
	taken := map[uint32]uint64{}
	if err := s.tables.eachTaken(func(key uint32, n uint64) { taken[key] = n }); err != nil {
		return fmt.Errorf("counters of the BPF programs: %w", err)
	}
	for _, svc := range from.Services {
		number := s.mapState.records[keyOf(svc)].service
		for kind := range plan.NodePort + 1 {
			if n := taken[takenKey(number, kind)]; n > 0 {
				add(svc, kind, n)
			}
		}
	}
	return nil
}

func socketsDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_ebpf_connections_total",
		"Connections that the BPF programs sent to an endpoint. "+
			"For the host's own connections, the programs choose the endpoint at connect or at the first send. "+
			"For other connections, the programs choose the endpoint at the first packet.", []string{"call"}, nil)
}

func leftDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_ebpf_left_total",
		"Connections to Services that the BPF programs left to nftables. "+
			"The programs see no UDP packets from other hosts. "+
			"The programs see TCP packets from other hosts only if ebpf.tc is true.", []string{"reason"}, nil)
}

func upDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_ebpf_up",
		"1 if the BPF programs are in use, 0 if nftables forwards all connections.", nil, nil)
}

func (p *proxier) Describe(out chan<- *prometheus.Desc) {
	nftables.RejectCollector{Table: p.Table}.Describe(out)
	out <- socketsDesc()
	out <- leftDesc()
	out <- upDesc()
}

func (p *proxier) Collect(out chan<- prometheus.Metric) {
	nftables.RejectCollector{Table: p.Table}.Collect(out)
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
