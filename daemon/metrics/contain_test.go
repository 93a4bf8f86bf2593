package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

type broken struct{ prometheus.Collector }

func (broken) Collect(chan<- prometheus.Metric) { panic("on purpose") }

func TestCollectorPanicIsReported(t *testing.T) {
	var told error
	registry := prometheus.NewPedanticRegistry()
	good := prometheus.NewGauge(prometheus.GaugeOpts{Name: "good"})
	bad := prometheus.NewGauge(prometheus.GaugeOpts{Name: "bad"})
	registry.MustRegister(good, safeCollector{broken{bad}, func(err error) { told = err }})
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || told == nil {
		t.Errorf("%d families, error %v, told %v", len(families), err, told)
	}
}
