package localnodeport

import (
	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers/plan"
)

// Metrics that kube-proxy (1.37, KEP-6032) also exports have the same names and labels in Edgeway.
var (
	listeners = desc("kubeproxy_nftables_localhost_nodeport_listeners",
		"NodePorts for which the daemon listens on loopback addresses.", "ip_family")
	listenFailures = desc("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"Failed attempts to listen on a NodePort at a loopback address.", "ip_family")
	acceptPauses = desc("edgeway_loopback_accept_pauses_total", "Number of times that new connections to NodePorts "+
		"on loopback had to wait. reason: descriptors (no file descriptor was free) "+
		"or limit (the connection limit was reached).", "reason")
	relayedBytes    = desc("edgeway_loopback_bytes_total", "Bytes relayed for NodePorts on loopback.", "direction")
	openConnections = desc("edgeway_loopback_connections", "Open connections to NodePorts on loopback.")
	connections     = desc("edgeway_loopback_connections_total", "Accepted connections to NodePorts on loopback.")
	dialFailures    = desc("edgeway_loopback_dial_failures_total",
		"Failed attempts to reach an endpoint for a connection to a NodePort on loopback.")
	dialRetries = desc("edgeway_loopback_dial_retries_total",
		"Endpoints that the relay tried after another endpoint failed, for connections to NodePorts on loopback.")
	resets = desc("edgeway_loopback_resets_total",
		"Connections to NodePorts on loopback that ended with an error, such as a reset.")
	unservedCounts = desc("edgeway_loopback_unserved_connections_total",
		"Connections to NodePorts on loopback that were reset because no endpoint answered.")
	loopbackDescs = []*prometheus.Desc{
		listeners, listenFailures, acceptPauses, relayedBytes, openConnections,
		connections, dialFailures, dialRetries, resets, unservedCounts,
	}
	loopbackFamilies = []plan.Family{plan.IPv4, plan.IPv6}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (p *Proxier) Describe(out chan<- *prometheus.Desc) {
	for _, d := range loopbackDescs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Proxier) Collect(out chan<- prometheus.Metric) {
	s := p.Stats()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	count := func(d *prometheus.Desc, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	for _, f := range loopbackFamilies {
		gauge(listeners, float64(s.Listeners[f]), f.String())
		count(listenFailures, s.ListenFailures[f], f.String())
	}
	gauge(openConnections, float64(s.Active))
	count(connections, s.Accepted)
	count(relayedBytes, s.ToEndpoint, "to_endpoint")
	count(relayedBytes, s.ToClient, "to_client")
	count(dialFailures, s.DialFailures)
	count(dialRetries, s.Retries)
	count(unservedCounts, s.NoEndpoint)
	count(resets, s.Resets)
	count(acceptPauses, s.DescriptorPauses, "descriptors")
	count(acceptPauses, s.LimitPauses, "limit")
}
