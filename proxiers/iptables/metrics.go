package iptables

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append(labels, "ip_family"), nil)
}

// kube-proxy exports the same restore metrics (KEP-3453).
var (
	restoreFailures = desc("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", "Failed restores of "+
		"iptables rules.")
	partialFailures = desc("kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
		"Failed partial restores, which write only the changed Services' rules. Edgeway restores all rules after each "+
			"failure.")
	rulesInKernel = desc("kubeproxy_sync_proxy_rules_iptables_total", "Edgeway's rules in the kernel.", "table")
	rulesOfSync   = desc("kubeproxy_sync_proxy_rules_iptables_last", "Rules that the last sync wrote.", "table")
	locksTaken    = desc("edgeway_iptables_lock_acquisitions_total",
		"Number of times that Edgeway acquired the lock of the iptables-legacy programs (0 for iptables-nft).")
	lockWait = desc("edgeway_iptables_lock_wait_seconds_total", "Time that Edgeway waited for the lock of "+
		"the iptables programs.")
)

func (p *proxier) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, out) }

func (p *proxier) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	for _, f := range p.families {
		family := f.Family.String()
		locks, waited := f.LockWait()
		send(locksTaken, prometheus.CounterValue, float64(locks), family)
		send(lockWait, prometheus.CounterValue, waited.Seconds(), family)
		f.mu.Lock()
		send(restoreFailures, prometheus.CounterValue, float64(f.failures), family)
		send(partialFailures, prometheus.CounterValue, float64(f.partialFailures), family)
		for _, table := range tables() {
			send(rulesInKernel, prometheus.GaugeValue, float64(f.kernel[table].rules), table, family)
			send(rulesOfSync, prometheus.GaugeValue, float64(f.last[table]), table, family)
		}
		f.mu.Unlock()
	}
}
