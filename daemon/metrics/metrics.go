// Package metrics counts what the daemon does and serves it to Prometheus.
//
// Where the meaning is the same, a metric has kube-proxy's name and labels (v1.36), so that its
// dashboards and alerts keep working; a sync here covers both families at once and is observed for
// each. Other metrics begin with "edgeway_".
//
// Hooks feed the counters and histograms (hooks.go); gauges are read from their
// owners at each scrape (collector.go); proxiers with metrics of their own are collectors. There is one registry for
// each Metrics, and no global one.
package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/plan"
)

// Source is the part of a source of objects that says how fresh it is.
type Source interface {
	Name() string
	Status() source.Status
}

// Options say where the values come from. The functions are called at a scrape, from any goroutine,
// and are never nil.
type Options struct {
	Version, Revision string
	// Backend is the name of the backend and of its stage, Mode kube-proxy's name for that kind of backend.
	Backend, Mode string
	// Families are those that are synced.
	Families []plan.Family
	State    func() pipeline.State
	Tracker  func() tracker.Stats
	Sources  []Source
	// SavedAt is when the last-known state on disk was written; zero: there is none.
	SavedAt func() time.Time
	// Expiries are when the credentials of the API server expire.
	Expiries func() map[string]time.Time
	// Faults returns for each ID whether there is a fault that is more than a notice.
	Faults func() map[string]bool
	// Proxiers are those of the backend and its followers that have metrics of their own, and the checks of endpoints.
	Proxiers []prometheus.Collector
	// Panicked is told of the panic of a collector, whose other metrics are missing then; it may be nil.
	Panicked func(error)
}

// contained keeps the panic of a collector from ending the process: client_golang (1.23) collects in goroutines of its
// own.
type contained struct {
	prometheus.Collector
	told func(error)
}

// Collect implements prometheus.Collector.
func (c contained) Collect(out chan<- prometheus.Metric) {
	err := contain.Call(func() error {
		c.Collector.Collect(out)
		return nil
	})
	if err != nil && c.told != nil {
		c.told(err)
	}
}

// Metrics is a registry with everything in it.
type Metrics struct {
	opts     Options
	families []string
	registry *prometheus.Registry

	// kube-proxy's, for the backend.
	duration, fullDuration, partialDuration *prometheus.HistogramVec
	programming                             *prometheus.HistogramVec
	healthz, livez                          *prometheus.CounterVec

	// Ours, for every stage.
	stageDuration *prometheus.HistogramVec
	stageErrors   *prometheus.CounterVec
}

// New registers all metrics, those of the Go runtime and the process included.
func New(opts Options) *Metrics {
	m := &Metrics{opts: opts, registry: prometheus.NewRegistry()}
	for _, f := range opts.Families {
		m.families = append(m.families, f.String())
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		contained{newCollector(opts), opts.Panicked},
	)
	for _, c := range opts.Proxiers {
		m.registry.MustRegister(contained{c, opts.Panicked})
	}
	m.makeInherited()
	m.makeOwn()
	return m
}

// Registry is for the tests of others and for further collectors.
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
	m.duration = m.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Time that a sync of the rules took.",
		syncBuckets, familyLabel)
	m.fullDuration = m.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
		"Time that a full sync of the rules took.", syncBuckets, familyLabel)
	m.partialDuration = m.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
		"Time that a partial sync of the rules took.", syncBuckets, familyLabel)
	m.programming = m.histogram("kubeproxy_network_programming_duration_seconds",
		"Time from a change of a Service's endpoints until the rules are updated.", programmingBuckets(), familyLabel)
	m.healthz = m.counter("kubeproxy_proxy_healthz_total", "Answers of /healthz.", "code")
	m.livez = m.counter("kubeproxy_proxy_livez_total", "Answers of /livez.", "code")
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
	m.stageDuration = m.histogram("edgeway_sync_duration_seconds", "Time that a stage took to apply a plan.",
		prometheus.ExponentialBuckets(0.0001, 4, 11), "stage", "kind")
	m.stageErrors = m.counter("edgeway_sync_errors_total", "Failed attempts of a stage.", "stage")
	m.stageErrors.WithLabelValues(m.opts.Backend)
}

// programmingBuckets are kube-proxy's, from 0.25 s to 5 min, and finer ones below, where an edge host
// spends its time.
func programmingBuckets() []float64 {
	return slices.Concat(
		[]float64{0.005, 0.01, 0.025, 0.05, 0.1},
		prometheus.LinearBuckets(0.25, 0.25, 2),
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7),
	)
}
