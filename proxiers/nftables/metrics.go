package nftables

import (
	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers/plan"
)

const familyLabel = "ip_family"

// newFailures returns a counter for failed syncs. A failed sync covers all families, so it counts once for each family.
func newFailures(families []plan.Family) *prometheus.CounterVec {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		Help: "Failed syncs of the nftables rules.",
	}, []string{familyLabel})
	for _, f := range families {
		failures.WithLabelValues(f.String())
	}
	return failures
}

func transactionsDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_nftables_transactions_total",
		"Successful nftables transactions, by path (netlink or nft).", []string{"path"}, nil)
}

func staleDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_nftables_transactions_stale_total",
		"Netlink transactions that Edgeway repeated because another program's transaction came first.", nil, nil)
}

func (p *proxier) Describe(out chan<- *prometheus.Desc) {
	p.failures.Describe(out)
	RejectCollector{p.Table}.Describe(out)
	out <- transactionsDesc()
	out <- staleDesc()
}

func (p *proxier) Collect(out chan<- prometheus.Metric) {
	p.failures.Collect(out)
	netlink, program, stale := p.Transactions()
	for path, n := range map[string]uint64{"netlink": netlink, "nft": program} {
		out <- prometheus.MustNewConstMetric(transactionsDesc(), prometheus.CounterValue, float64(n), path)
	}
	out <- prometheus.MustNewConstMetric(staleDesc(), prometheus.CounterValue, float64(stale))
	RejectCollector{p.Table}.Collect(out)
}
