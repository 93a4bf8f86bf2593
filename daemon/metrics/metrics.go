package metrics

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/daemon/pipeline"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// collector reads the metrics' current values at each scrape.
type collector struct {
	opts  Options
	descs map[string]*prometheus.Desc
}

// collectorMetrics lists the collector's metrics, with their names, help texts and labels. registry.go creates the
// histograms and the counters that hooks.go updates.
var collectorMetrics = [...]struct {
	name, help string
	labels     []string
}{
	{"kubeproxy_sync_proxy_rules_last_timestamp_seconds", "Time when the rules were last in sync with the plan.", []string{familyLabel}},
	{"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "Time when a sync was last requested.", []string{familyLabel}},
	{"kubeproxy_sync_proxy_rules_service_changes_total", "Changes to Services.", nil},
	{"kubeproxy_sync_proxy_rules_service_changes_pending", "Pending changes to Services.", nil},
	{"kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes to EndpointSlices.", nil},
	{
		"kubeproxy_sync_proxy_rules_endpoint_changes_pending",
		"Pending changes to EndpointSlices.", nil,
	},
	{"kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Service ports with a Local traffic policy and no " +
		"endpoint on this host.", []string{"traffic_policy", familyLabel}},
	{"edgeway_build_info", "Always 1. The labels contain the versions of Edgeway and Go.", []string{
		"version", "revision", "goversion",
	}},
	{"edgeway_fault", "1 while a fault is more severe than a notice, by fault ID; \"edgeway status\" " +
		"shows the text of the fault.", []string{"name"}},
	{"edgeway_credential_expiry_timestamp_seconds", "Time when a credential for the API server (ca, " +
		"client-certificate or token) expires. Absent if the credential does not expire or is " +
		"unreadable.", []string{"credential"}},
	{"edgeway_drift_repairs_total", "Full syncs that repaired rules after another program changed them.", []string{"stage"}},
	{"edgeway_faulty_objects", "Objects that Edgeway ignores, completely or in part, by reason: invalid, policy (an " +
		"address or port that belongs to another Service, or that no Service may use) or refused (by the " +
		"kernel).", []string{"kind", "reason"}},
	{"edgeway_last_error_timestamp_seconds", "Time of a stage's last failure. Absent if the stage has " +
		"never failed.", []string{"stage"}},
	{"edgeway_last_known_age_seconds", "Age of the last-known state on disk. Absent if no state is saved.", nil},
	{"edgeway_out_of_sync_seconds", "How long the kernel has been out of sync with the latest changes. 0 if the " +
		"kernel is in sync.", nil},
	{"edgeway_programmed_endpoints", "Endpoints in the kernel, counted once for each Service port.", nil},
	{"edgeway_programmed_service_ports", "Service ports in the kernel, counted once for each address family.", nil},
	{"edgeway_programmed_services", "Services in the kernel.", nil},
	{"edgeway_services_without_endpoint", "Services in the kernel with a port that has no ready endpoint.", nil},
	{
		"edgeway_service_connections_total", "New connections to a Service port. Requires metrics.services. The " +
			"labels are empty for the sum of all ports except the busiest 1,000.",
		[]string{"namespace", "service", "port", "protocol", "frontend"},
	},
	{"edgeway_source_objects", "Objects that a source provides.", []string{"source", "kind"}},
	{"edgeway_source_staleness_seconds", "Time since a source was last known to be up to date. Absent if " +
		"the source has never been up to date.", []string{"source"}},
	{"edgeway_source_synced", "1 once a source has listed all objects.", []string{"source"}},
}

func newCollector(opts Options) *collector {
	c := &collector{opts: opts, descs: map[string]*prometheus.Desc{}}
	for _, m := range collectorMetrics {
		c.descs[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := scrape{c, out, time.Now()}
	state := c.opts.State()
	s.gauge("edgeway_build_info", 1, c.opts.Version, c.opts.Revision, runtime.Version())
	s.syncs(&state)
	s.programmed(state.AppliedPlan)
	s.faults(&state)
	s.hostFaults()
	s.tracker()
	s.sources()
	s.connections()
}

type scrape struct {
	*collector
	out chan<- prometheus.Metric
	now time.Time
}

func (s scrape) gauge(name string, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(s.descs[name], prometheus.GaugeValue, value, labels...)
}

func (s scrape) counter(name string, value uint64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(s.descs[name], prometheus.CounterValue, float64(value), labels...)
}

func (s scrape) timestamp(name string, t time.Time, labels ...string) {
	if !t.IsZero() {
		s.gauge(name, float64(t.UnixNano())/1e9, labels...)
	}
}

func (s scrape) age(name string, t time.Time, labels ...string) {
	if !t.IsZero() {
		s.gauge(name, max(0, s.now.Sub(t).Seconds()), labels...)
	}
}

func (s scrape) syncs(state *pipeline.State) {
	for _, f := range s.opts.Families {
		s.timestamp("kubeproxy_sync_proxy_rules_last_timestamp_seconds", state.Backend.LastSync, f.String())
		s.timestamp("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", state.QueuedAt, f.String())
	}
	if state.OutOfSyncSince.IsZero() {
		s.gauge("edgeway_out_of_sync_seconds", 0)
	} else {
		s.age("edgeway_out_of_sync_seconds", state.OutOfSyncSince)
	}
	for _, st := range state.Stages() {
		s.counter("edgeway_drift_repairs_total", st.DriftRepairs, st.Name)
		s.timestamp("edgeway_last_error_timestamp_seconds", st.LastErr, st.Name)
	}
}

func (s scrape) programmed(p *plan.Plan) {
	n := pipeline.Count(p)
	s.gauge("edgeway_programmed_services", float64(n.Services))
	s.gauge("edgeway_programmed_service_ports", float64(n.ServicePorts))
	s.gauge("edgeway_programmed_endpoints", float64(n.Endpoints))
	s.gauge("edgeway_services_without_endpoint", float64(n.WithoutEndpoint))
	internal, external := countNoLocalEndpoints(p)
	for _, f := range s.opts.Families {
		s.gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total", float64(internal[f]), "internal", f.String())
		s.gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total", float64(external[f]), "external", f.String())
	}
}

// countNoLocalEndpoints counts, by traffic policy and family, the ServicePorts whose connections Edgeway drops because
// no endpoint is on this host.
func countNoLocalEndpoints(p *plan.Plan) (internal, external map[plan.Family]int) {
	internal, external = map[plan.Family]int{}, map[plan.Family]int{}
	if p == nil {
		return internal, external
	}
	for _, svc := range p.Services {
		var in, ex bool
		for i := range svc.Frontends {
			dropped := svc.Frontends[i].Routes[plan.FromOutside].Verdict == plan.Drop
			if svc.Frontends[i].Kind == plan.ClusterIP {
				in = in || dropped
			} else {
				ex = ex || dropped
			}
		}
		if in {
			internal[svc.Family]++
		}
		if ex {
			external[svc.Family]++
		}
	}
	return internal, external
}

func (s scrape) faults(state *pipeline.State) {
	type object struct {
		fault.Object
		reason string
	}
	seen := map[object]bool{}
	count := map[[2]string]int{}
	add := func(p fault.Fault, reason string) {
		o := object{p.Object, reason}
		if !seen[o] && p.Object.Kind != "" {
			seen[o] = true
			count[[2]string{p.Object.Kind, reason}]++
		}
	}
	if state.Snapshot != nil {
		for _, p := range state.Snapshot.Problems {
			add(p, "invalid")
		}
	}
	for _, p := range state.PlanProblems {
		add(p, "policy")
	}
	for _, q := range state.Quarantined {
		add(q.Fault(), "refused")
	}
	for labels, n := range count {
		s.gauge("edgeway_faulty_objects", float64(n), labels[0], labels[1])
	}
}

func (s scrape) hostFaults() {
	for name, holds := range s.opts.Faults() {
		value := 0.0
		if holds {
			value = 1
		}
		s.gauge("edgeway_fault", value, name)
	}
}

func (s scrape) tracker() {
	t := s.opts.Tracker()
	s.counter("kubeproxy_sync_proxy_rules_service_changes_total", t.Services.Total)
	s.gauge("kubeproxy_sync_proxy_rules_service_changes_pending", float64(t.Services.Pending))
	s.counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", t.Endpoints.Total)
	s.gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", float64(t.Endpoints.Pending))
	for _, layer := range t.Layers {
		for kind, n := range layer.Objects {
			s.gauge("edgeway_source_objects", float64(n), layer.Name, kind)
		}
	}
}

func (s scrape) sources() {
	for _, src := range s.opts.Sources {
		st := src.Status()
		synced := 0.0
		if st.Synced {
			synced = 1
		}
		s.gauge("edgeway_source_synced", synced, src.Name())
		s.age("edgeway_source_staleness_seconds", st.LastContact, src.Name())
	}
	s.age("edgeway_last_known_age_seconds", s.opts.SavedAt())
	for credential, at := range s.opts.Expiries() {
		s.timestamp("edgeway_credential_expiry_timestamp_seconds", at, credential)
	}
}

// maxServicePorts is the maximum number of Service ports that edgeway_service_connections_total lists individually.
const maxServicePorts = 1000

func (s scrape) connections() {
	counts := s.opts.Connections()
	busiest := slices.SortedFunc(maps.Keys(counts), func(a, b proxiers.Frontends) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), a.Name.Compare(b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	rest := uint64(0)
	for i, f := range busiest {
		if i >= maxServicePorts {
			rest += counts[f]
			continue
		}
		s.counter("edgeway_service_connections_total", counts[f], f.Name.Namespace, f.Name.Name, f.Name.Port,
			f.Name.Protocol.String(), f.Kind.String())
	}
	if rest > 0 {
		s.counter("edgeway_service_connections_total", rest, "", "", "", "", "")
	}
}
