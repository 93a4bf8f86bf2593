// Package metrics collects the daemon's metrics and serves them to Prometheus.
//
// A metric with the same meaning as one of kube-proxy's metrics (v1.36) has the same name and labels, so dashboards and
// alerts for kube-proxy keep working. In Edgeway, a sync covers both address families, and the metrics count the sync
// once for each family. The names of Edgeway's own metrics begin with "edgeway_".
//
// Hooks update the histograms (hooks.go). The collector reads the gauges at each scrape (metrics.go). A proxier that
// has its own metrics also implements prometheus.Collector. Each Metrics has its own registry and does not use the
// global registry.
package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/plan"
)

// Options provides the metric values. Each scrape calls every function except OnPanic, from any goroutine. No function
// in Options may be nil.
type Options struct {
	Version, Revision string
	// Backend is the name of the backend and of its stage. Mode is kube-proxy's name for the kind of backend.
	Backend, Mode string
	Families      []plan.Family
	State         func() pipeline.State
	Tracker       func() tracker.Stats
	Sources       []source.Source
	// SavedAt returns the time when the last-known state on disk last agreed with the source, or the zero time if no
	// state is on disk.
	SavedAt func() time.Time
	// Expiries returns the expiry times of the credentials for the API server.
	Expiries func() map[string]time.Time
	// Faults returns all known fault IDs. The map's value for an ID is true if a current fault with this ID is more
	// severe than a notice.
	Faults func() map[string]bool
	// Proxiers holds the proxiers that have their own metrics, and the endpoint checker.
	Proxiers []prometheus.Collector
	// Connections returns the number of new connections for each Service port and kind of frontend. Connections returns
	// nil if Edgeway does not count connections or cannot read the counts.
	Connections func() map[proxiers.Frontends]uint64
	// OnPanic receives a collector's panic as an error. After a panic, the scrape lacks that collector's remaining
	// metrics.
	OnPanic func(error)
}

// safeCollector is a collector that recovers from its own panics. Without a safeCollector, a panic would terminate the
// process, because client_golang (1.23) runs collectors in separate goroutines.
type safeCollector struct {
	prometheus.Collector
	onPanic func(error)
}

// Collect implements prometheus.Collector.
func (c safeCollector) Collect(out chan<- prometheus.Metric) {
	err := contain.Call(func() error {
		c.Collector.Collect(out)
		return nil
	})
	if err != nil {
		c.onPanic(err)
	}
}

// Metrics is a registry that contains all of the daemon's metrics.
type Metrics struct {
	opts     Options
	families []string
	registry *prometheus.Registry

	duration, fullDuration, partialDuration *prometheus.HistogramVec
	programming                             *prometheus.HistogramVec
	healthz, livez                          *prometheus.CounterVec

	stageDuration *prometheus.HistogramVec
	stageErrors   *prometheus.CounterVec
}

// New registers all metrics, including the Go runtime metrics and the process metrics.
func New(opts Options) *Metrics {
	m := &Metrics{opts: opts, registry: prometheus.NewRegistry()}
	for _, f := range opts.Families {
		m.families = append(m.families, f.String())
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		safeCollector{newCollector(opts), opts.OnPanic},
	)
	for _, c := range opts.Proxiers {
		m.registry.MustRegister(safeCollector{c, opts.OnPanic})
	}
	m.makeInherited()
	m.makeOwn()
	return m
}

// Registry returns the registry, for tests and for additional collectors.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

const familyLabel = "ip_family"

func (m *Metrics) makeInherited() {
	syncBuckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	m.duration = m.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Duration of a rule sync.",
		syncBuckets, familyLabel)
	m.fullDuration = m.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
		"Duration of a full rule sync.", syncBuckets, familyLabel)
	m.partialDuration = m.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
		"Duration of a partial rule sync.", syncBuckets, familyLabel)
	m.programming = m.histogram("kubeproxy_network_programming_duration_seconds",
		"Time from a change to a Service's endpoints until the rules are updated.", programmingBuckets(), familyLabel)
	m.healthz = m.counter("kubeproxy_proxy_healthz_total", "Responses of /healthz.", "code")
	m.livez = m.counter("kubeproxy_proxy_livez_total", "Responses of /livez.", "code")
	for _, f := range m.families {
		m.duration.WithLabelValues(f)
		m.fullDuration.WithLabelValues(f)
		m.partialDuration.WithLabelValues(f)
		m.programming.WithLabelValues(f)
	}
	for _, code := range []string{"200", "503"} {
		m.healthz.WithLabelValues(code)
		m.livez.WithLabelValues(code)
	}
}

func (m *Metrics) makeOwn() {
	m.stageDuration = m.histogram("edgeway_sync_duration_seconds", "Time that a stage takes to apply a plan.",
		prometheus.ExponentialBuckets(0.0001, 4, 11), "stage", "kind")
	m.stageErrors = m.counter("edgeway_sync_errors_total", "Failed attempts by a stage to apply a plan.", "stage")
	m.stageErrors.WithLabelValues(m.opts.Backend)
}

// programmingBuckets returns kube-proxy's buckets (0.25 s to 5 min) and smaller buckets, because most observations on
// an edge host are below 0.25 s.
func programmingBuckets() []float64 {
	return slices.Concat(
		[]float64{0.005, 0.01, 0.025, 0.05, 0.1},
		prometheus.LinearBuckets(0.25, 0.25, 2),
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7),
	)
}
