package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/journal"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// cluster holds a tracker with objects, a planner, and a serviceLog that processes each sync.
type cluster struct {
	*serviceLog
	out     bytes.Buffer
	tracker *tracker.Tracker
	sink    source.Sink
	planner *planner.Planner
	synced  *plan.Plan
}

func newCluster(objects ...source.Object) *cluster {
	c := &cluster{tracker: tracker.New(tracker.Layer{Name: fileLayer})}
	c.sink = c.tracker.Sink(fileLayer)
	c.planner = planner.New(plannerOptions(config.Default(), []plan.Family{plan.IPv4},
		func() []source.Holding { return nil }))
	logger := slog.New(slog.NewTextHandler(&c.out, nil))
	c.serviceLog = newServiceLog(logger, journal.NewDamper(logger), nil)
	c.apply(objects...)
	c.sink.Synced()
	return c
}

func (c *cluster) apply(objects ...source.Object) {
	for _, o := range objects {
		c.sink.Upsert(o)
	}
}

func (c *cluster) sync() string {
	snap, _ := c.tracker.Snapshot()
	next, _ := c.planner.Plan(snap, nil, c.synced)
	c.serviceLog.logSync(snap, next, pipeline.SyncResult{Change: proxiers.NewChange(c.synced, next)})
	c.synced = next
	defer c.out.Reset()
	return c.out.String()
}

func testService(name string, i int, ports ...string) *source.Service {
	s := &source.Service{Namespace: "ns", Name: name}
	s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}
	for n, port := range ports {
		s.Ports = append(s.Ports, source.ServicePort{Name: port, Protocol: plan.TCP, Port: uint16(80 + n)})
	}
	return s
}

// testSlice returns an EndpointSlice with one endpoint that serves all ports.
func testSlice(service string, ready bool, ports ...string) *source.EndpointSlice {
	s := &source.EndpointSlice{Namespace: "ns", Name: service + "-1", Service: service, Family: plan.IPv4}
	s.Endpoints = []source.Endpoint{{Addr: netip.MustParseAddr("10.1.0.1"), Ready: ready, Serving: true}}
	for _, port := range ports {
		s.Ports = append(s.Ports, source.SlicePort{Name: port, Protocol: plan.TCP, Port: 8080})
	}
	return s
}

func TestServiceChangesAreLogged(t *testing.T) {
	web, slice := testService("web", 1, "http"), testSlice("web", true, "http")
	two := testService("web", 1, "http", "metrics")
	moved := testService("web", 2, "http")
	for name, c := range map[string]struct {
		before, after []source.Object
		gone          []source.Object
		want          string // the only logged line must contain want, and "" means that there is no line
		unserved      int
	}{
		"added":                 {nil, []source.Object{web, slice}, nil, "Service added", 0},
		"added without":         {nil, []source.Object{web}, nil, "ports_without_endpoint=1", 1},
		"removed":               {[]source.Object{web, slice}, nil, []source.Object{web}, "Service removed", 0},
		"removed without":       {[]source.Object{web}, nil, []source.Object{web}, "Service removed", 0},
		"loses its endpoint":    {[]source.Object{web, slice}, []source.Object{testSlice("web", false, "http")}, nil, "Service lost its last ready endpoint", 1},
		"loses its slice":       {[]source.Object{web, slice}, nil, []source.Object{slice}, "Service lost its last ready endpoint", 1},
		"gets one":              {[]source.Object{web}, []source.Object{slice}, nil, "Service has a ready endpoint", 0},
		"one port has none":     {[]source.Object{two, testSlice("web", true, "http", "metrics")}, []source.Object{slice}, nil, "ports_without_endpoint=1", 1},
		"the other one as well": {[]source.Object{two, slice}, []source.Object{testSlice("web", false, "http")}, nil, "ports_without_endpoint=2", 2},
		"has another address":   {[]source.Object{web, slice}, []source.Object{moved}, nil, "", 0},
		"an unready one comes":  {[]source.Object{web}, []source.Object{testSlice("web", false, "http")}, nil, "", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(append(c.before, testService("other", 9, "http"))...)
			if got := w.sync(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "Services are served") {
				t.Errorf("%s: at first %q", name, got)
			}
			w.apply(c.after...)
			for _, o := range c.gone {
				w.sink.Delete(o.Key())
			}
			got := w.sync()
			if c.want == "" && got != "" || c.want != "" && (strings.Count(got, "\n") != 1 ||
				!strings.Contains(got, c.want) || !strings.Contains(got, " service=ns/web ")) {
				t.Errorf("%s: %q", name, got)
			}
			if got := w.unservedPortFaults(); len(got) != c.unserved+1 {
				t.Errorf("%s: %+v", name, got)
			}
			if got := w.sync(); got != "" {
				t.Errorf("%s, and nothing more: %q", name, got)
			}
		})
	}
}

// A Notice about a port without endpoints contains the cause, the time and the ServicePort. The latest Notice comes
// first.
func TestServiceWithoutEndpointIsNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(testService("old", 1, "http"), testService("web", 2, "http"), testSlice("web", true, "http"))
		w.sync()
		time.Sleep(time.Hour)
		w.apply(testSlice("web", false, "http"))
		w.sync()
		got := w.unservedPortFaults()
		if len(got) != 2 || fault.WorstSeverity(got) != fault.Notice {
			t.Fatalf("%+v", got)
		}
		web, old := got[0], got[1]
		if web.ID != planner.NoEndpointID || !web.Since.Equal(time.Now()) || !old.Since.IsZero() ||
			web.Scope != (fault.Scope{ServicePort: "ns/web:http/TCP"}) ||
			web.String() != "Service ns/web: spec.ports[0]: no endpoint is ready: 10.1.0.1" {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Hour)
		w.sink.Delete(testSlice("web", false, "http").Key())
		w.sync()
		if again := w.unservedPortFaults(); !again[0].Since.Equal(web.Since) || again[0].Message == web.Message {
			t.Errorf("for another reason: %+v", again[0])
		}
	})
}

func TestInitialListIsNotLoggedAsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(testService("web", 1, "http"))
		w.tracker = tracker.New(tracker.Layer{Name: fileLayer}, tracker.Layer{Name: kubeLayer},
			tracker.Layer{Name: lastKnownLayer, FallbackFor: kubeLayer})
		w.tracker.Sink(fileLayer).Synced()
		w.tracker.Sink(lastKnownLayer).Synced()
		w.sink = w.tracker.Sink(kubeLayer)
		w.sync()
		for i := range 3 {
			w.apply(testService(fmt.Sprint("web-", i), i, "http"))
			if got := w.sync(); got != "" {
				t.Errorf("while the source lists: %q", got)
			}
		}
		w.sink.Synced()
		if got := w.sync(); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, "services=3 endpoints=0 without_endpoint=3 complete=true") {
			t.Errorf("after the list: %q", got)
		}
		w.apply(testService("web-9", 9, "http"))
		if got := w.sync(); !strings.Contains(got, "Service added") {
			t.Errorf("later: %q", got)
		}
	})
}

// The cost of logging a sync depends on the size of the change, not on the size of the cluster.
func TestServiceLogCostDependsOnChange(t *testing.T) {
	cost := func(services int) float64 {
		w := newCluster()
		for i := range services {
			name := fmt.Sprint("web-", i)
			w.apply(testService(name, i, "http"), testSlice(name, true, "http"))
		}
		w.sync()
		before := w.serviceLog.plan
		w.apply(testSlice("web-1", false, "http"))
		w.sync()
		after, snap := w.serviceLog.plan, w.snap
		there, back := proxiers.NewChange(before, after), proxiers.NewChange(after, before)
		return testing.AllocsPerRun(100, func() {
			w.serviceLog.logSync(snap, before, pipeline.SyncResult{Change: back})
			w.serviceLog.logSync(snap, after, pipeline.SyncResult{Change: there})
			w.unservedPortFaults()
		})
	}
	wantSameCost(t, cost)
}

// wantSameCost tests that the number of allocations does not grow with the number of Services. Garbage collection and
// other goroutines can add a few allocations, so wantSameCost compares the minima of several measurements.
func wantSameCost(t *testing.T, cost func(services int) float64) {
	t.Helper()
	small, big := cost(10), cost(3000)
	for range 4 {
		small, big = min(small, cost(10)), min(big, cost(3000))
	}
	if big > small+1 {
		t.Errorf("%.0f allocations with 10 Services, %.0f with 3000", small, big)
	}
}

// If manifests are missing after a reload, the daemon logs the removal of their Services.
func TestReloadLogsRemovedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := testService("web", 1, "http")
		w := newCluster(web, testSlice("web", true, "http"), testService("db", 2, "sql"))
		w.sync()
		logger := slog.New(slog.NewTextHandler(&w.out, nil))
		w.serviceLog = newServiceLog(logger, journal.NewDamper(logger), w.synced)
		w.synced = nil // a new instance has no previous plan
		w.sink.Delete(web.Key())
		if got := w.sync(); !strings.Contains(got, "Service removed") || !strings.Contains(got, " service=ns/web ") ||
			strings.Contains(got, "ns/db") {
			t.Errorf("%q", got)
		}
	})
}

func TestServiceFaultCostDependsOnChange(t *testing.T) {
	cost := func(services int) float64 {
		w := newCluster()
		for i := range services {
			w.apply(testService(fmt.Sprint("web-", i), i, "http"))
		}
		w.sync()
		w.unservedPortFaults()
		slices := [2]*source.EndpointSlice{testSlice("web-1", false, "http"), testSlice("web-1", false, "sql")}
		i := 0
		return testing.AllocsPerRun(100, func() {
			w.serviceLog.idleServices[tracker.Name{Namespace: "ns", Name: "web-1"}].service = nil
			w.sink.Upsert(slices[i%2])
			w.stale = true
			i++
			w.unservedPortFaults()
		})
	}
	wantSameCost(t, cost)
}

// BenchmarkUnserved measures unservedPortFaults after a sync that changed none, one, or all of the Services without
// endpoints.
func BenchmarkUnserved(b *testing.B) {
	for _, changed := range []int{0, 1, 5000} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			w := newCluster()
			for i := range 5000 {
				w.apply(testService(fmt.Sprint("web-", i), i, "http"))
			}
			w.sync()
			w.unservedPortFaults()
			for b.Loop() {
				w.stale = true
				for i := range changed {
					w.idleServices[tracker.Name{Namespace: "ns", Name: fmt.Sprint("web-", i)}].service = nil
				}
				w.unservedPortFaults()
			}
		})
	}
}
