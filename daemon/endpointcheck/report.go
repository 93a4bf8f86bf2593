package endpointcheck

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers/messageid"
)

// logChange logs that an endpoint has died or responds again. The caller must hold mu.
func (c *Checker) logChange(t *target, fault string) {
	if t.dead {
		c.lines.Log(t.addr.String(), slog.LevelWarn, messageid.EndpointDead, "endpoint does not answer",
			"endpoint", t.addr, "fault", fault, "checks", c.settings.Failures)
	} else {
		c.lines.Log(t.addr.String(), slog.LevelInfo, messageid.EndpointAlive, "endpoint answers again",
			"endpoint", t.addr, "dead_for", time.Since(c.faults[t.addr].Since).Round(time.Second))
	}
}

func checksDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_endpoint_checks_total", "Endpoint checks, by result (passed or failed).",
		[]string{"result"}, nil)
}

func endpointsDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_endpoint_checks_endpoints",
		"Endpoints that Edgeway checks, by state (alive or dead).",
		[]string{"state"}, nil)
}

// Describe implements prometheus.Collector.
func (c *Checker) Describe(out chan<- *prometheus.Desc) {
	out <- checksDesc()
	out <- endpointsDesc()
}

// Collect implements prometheus.Collector.
func (c *Checker) Collect(out chan<- prometheus.Metric) {
	count := func(result string, n uint64) {
		out <- prometheus.MustNewConstMetric(checksDesc(), prometheus.CounterValue, float64(n), result)
	}
	count("passed", c.passed.Load())
	count("failed", c.failed.Load())
	dead := c.DeadEndpoints().Len()
	endpoints := func(state string, n int) {
		out <- prometheus.MustNewConstMetric(endpointsDesc(), prometheus.GaugeValue, float64(n), state)
	}
	endpoints("alive", max(0, c.CountEndpoints()-dead))
	endpoints("dead", dead)
}
