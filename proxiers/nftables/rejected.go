package nftables

import (
	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// RejectCollector is a prometheus.Collector that reports the number of rejected packets to loopback addresses.
type RejectCollector struct{ Table *nfttable.Table }

func rejectedDesc() *prometheus.Desc {
	return prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
		"Rejected UDP and SCTP packets to NodePorts on loopback addresses.",
		[]string{familyLabel, "protocol"}, nil)
}

// Describe implements prometheus.Collector.
func (r RejectCollector) Describe(out chan<- *prometheus.Desc) { out <- rejectedDesc() }

// Collect implements prometheus.Collector.
func (r RejectCollector) Collect(out chan<- prometheus.Metric) {
	counters, err := r.Table.Counters()
	if err != nil {
		return // the metric is absent from this scrape
	}
	for f, packets := range counters {
		for _, proto := range plan.NotRelayedProtocols() {
			n := float64(packets[loopbackCounter(proto)])
			out <- prometheus.MustNewConstMetric(rejectedDesc(), prometheus.CounterValue, n, f.String(), proto.String())
		}
	}
}
