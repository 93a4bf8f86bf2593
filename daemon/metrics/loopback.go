package metrics

// loopback tells of NodePorts on loopback addresses (proxiers/localnodeport).
func (s scrape) loopback() {
	l := s.opts.Loopback()
	for _, f := range s.opts.Families {
		s.gauge("kubeproxy_nftables_localhost_nodeport_listeners", float64(l.Listeners[f]), f.String())
		s.counter("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total", l.ListenFailures[f], f.String())
	}
	s.gauge("edgeway_loopback_connections", float64(l.Active))
	s.counter("edgeway_loopback_connections_total", l.Accepted)
	s.counter("edgeway_loopback_bytes_total", l.ToEndpoint, "to_endpoint")
	s.counter("edgeway_loopback_bytes_total", l.ToClient, "to_client")
	s.counter("edgeway_loopback_dial_failures_total", l.DialFailures)
	s.counter("edgeway_loopback_dial_retries_total", l.Retries)
	s.counter("edgeway_loopback_unserved_connections_total", l.NoEndpoint)
	s.counter("edgeway_loopback_resets_total", l.Resets)
	s.counter("edgeway_loopback_accept_pauses_total", l.DescriptorPauses, "descriptors")
	s.counter("edgeway_loopback_accept_pauses_total", l.LimitPauses, "limit")
	rejected, err := s.opts.LoopbackRejected()
	if err != nil {
		return // the kernel can not be asked now, and the metric is absent from this scrape
	}
	for _, r := range rejected {
		s.counter("kubeproxy_nftables_localhost_nodeport_rejected_packets_total", r.Packets, r.Family.String(), r.Protocol.String())
	}
}
