package metrics

// restores tells of a backend that works through iptables-restore (KEP-3453).
func (s scrape) restores() {
	for _, r := range s.opts.Restores() {
		family := r.Family.String()
		s.counter("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", r.Failures, family)
		s.counter("kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", r.PartialFailures, family)
		for _, t := range r.Tables {
			s.gauge("kubeproxy_sync_proxy_rules_iptables_total", float64(t.Total), t.Name, family)
			s.gauge("kubeproxy_sync_proxy_rules_iptables_last", float64(t.Last), t.Name, family)
		}
		s.counter("edgeway_iptables_lock_acquisitions_total", r.Locks, family)
		s.total("edgeway_iptables_lock_wait_seconds_total", r.LockWait.Seconds(), family)
	}
}
