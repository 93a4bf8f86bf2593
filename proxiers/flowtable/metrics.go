package flowtable

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type reason int

const (
	ofSync reason = iota
	ofServices
	ofRules
	ofDevices
	numReasons
)

var reasons = [numReasons]string{ofSync: "sync", ofServices: "services", ofRules: "rules", ofDevices: "devices"}

type counts [numReasons]atomic.Uint64

// listTimeout is the time limit for listing the offloaded connections. To list the offloaded connections, the kernel
// visits all tracked connections.
const listTimeout = 5 * time.Second

var (
	availableDesc = prometheus.NewDesc("edgeway_fastpath_available",
		"1 if this host supports the fast path.", nil, nil)
	servicesDesc = prometheus.NewDesc("edgeway_fastpath_service_ports", "ServicePorts that opted in to the fast path.",
		nil, nil)
	devicesDesc = prometheus.NewDesc("edgeway_fastpath_devices", "Network devices that the fast path uses.",
		nil, nil)
	flowsDesc = prometheus.NewDesc("edgeway_fastpath_connections",
		"Service connections that use the fast path.", nil, nil)
	writesDesc = prometheus.NewDesc("edgeway_fastpath_rewrites_total",
		"Number of times that the daemon made all connections pass through the rules again: at a full sync, or "+
			"because a Service changed, another program changed rules, or a network device appeared.",
		[]string{"reason"}, nil)
)

func (f *follower) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{availableDesc, servicesDesc, devicesDesc, flowsDesc, writesDesc} {
		out <- d
	}
}

func (f *follower) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	for why := range f.writes {
		out <- prometheus.MustNewConstMetric(writesDesc, prometheus.CounterValue, float64(f.writes[why].Load()),
			reasons[why])
	}
	if f.blocked() {
		gauge(availableDesc, 0)
		return
	}
	gauge(availableDesc, 1)
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	state, err := f.Offloading(ctx)
	gauge(devicesDesc, len(state.Devices))
	gauge(servicesDesc, len(state.Services))
	if err != nil {
		return // the list failed, so this scrape omits the metric
	}
	flows := 0
	for i := range state.Services {
		flows += state.Services[i].Flows
	}
	gauge(flowsDesc, flows)
}
