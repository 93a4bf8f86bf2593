package conntrack

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers/plan"
)

// counts holds the follower's metrics, which have the same names as in kube-proxy v1.36.
type counts struct {
	took    *prometheus.HistogramVec
	deleted *prometheus.CounterVec
}

func newCounts(families []plan.Family) *counts {
	labels := []string{"ip_family"}
	c := &counts{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeproxy_conntrack_reconciler_sync_duration_seconds",
			Help:    "Duration of a cleanup of connection-tracking entries.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, labels),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
			Help: "Stale connection-tracking entries that Edgeway deleted.",
		}, labels),
	}
	for _, f := range families {
		c.deleted.WithLabelValues(f.String())
	}
	return c
}

func (c *counts) note(family plan.Family, deleted int, took time.Duration) {
	c.took.WithLabelValues(family.String()).Observe(took.Seconds())
	c.deleted.WithLabelValues(family.String()).Add(float64(deleted))
}

func (c *counts) Describe(out chan<- *prometheus.Desc) {
	c.took.Describe(out)
	c.deleted.Describe(out)
}

func (c *counts) Collect(out chan<- prometheus.Metric) {
	c.took.Collect(out)
	c.deleted.Collect(out)
}
