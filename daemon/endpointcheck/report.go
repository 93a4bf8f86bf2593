package endpointcheck

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Transitions are logged, but in linesSpan no more than maxLines of them: many endpoints die together, and some come
// and go all the time.
const (
	maxLines  = 20
	linesSpan = time.Minute
)

// damper counts the lines of a span.
type damper struct {
	end         time.Time
	lines, more int
}

// allow reports whether there may be another line, and counts it.
func (d *damper) allow() bool {
	if d.lines++; d.lines <= maxLines {
		return true
	}
	d.more++
	return false
}

// flush begins a new span when one has ended, and says what it left out.
func (d *damper) flush(log *slog.Logger, now time.Time) {
	if now.Before(d.end) {
		return
	}
	if d.more > 0 {
		log.Warn("more endpoints ceased to answer or answer again, see edgeway status", "more", d.more)
	}
	*d = damper{end: now.Add(linesSpan)}
}

// note logs that an endpoint has died or is back; before is what was wrong with it.
func (c *Checker) note(r result, before Fault) {
	if !c.lines.allow() {
		return
	}
	if r.target.dead {
		c.log.Warn("endpoint does not answer", "endpoint", r.target.addr, "fault", r.fault, "checks", c.settings.Failures)
	} else {
		c.log.Info("endpoint answers again", "endpoint", r.target.addr, "dead_for", time.Since(before.Since).Round(time.Second))
	}
}

// counts are what metrics show.
type counts struct {
	targets        atomic.Int64
	passed, failed atomic.Uint64
}

func (n *counts) add(failed bool) {
	if failed {
		n.failed.Add(1)
	} else {
		n.passed.Add(1)
	}
}

func checksDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_endpoint_checks_total", "Checks of endpoints. result: passed or failed.", []string{"result"}, nil)
}

func endpointsDesc() *prometheus.Desc {
	return prometheus.NewDesc("edgeway_endpoint_checks_endpoints", "Endpoints that are checked. state: alive or dead.", []string{"state"}, nil)
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
	count("passed", c.counts.passed.Load())
	count("failed", c.counts.failed.Load())
	dead := c.Dead().Len()
	endpoints := func(state string, n int) {
		out <- prometheus.MustNewConstMetric(endpointsDesc(), prometheus.GaugeValue, float64(n), state)
	}
	endpoints("alive", max(0, c.Endpoints()-dead))
	endpoints("dead", dead)
}
