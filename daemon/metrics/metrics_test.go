package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/healthcheck"
	"edgeway/proxiers/localnodeport"
	"edgeway/proxiers/plan"
)

var update = flag.Bool("update", false, "write testdata/exposition.txt anew")

type fixedSource struct {
	name   string
	status source.Status
}

func (f fixedSource) Name() string          { return f.name }
func (f fixedSource) Status() source.Status { return f.status }

func (fixedSource) Run(context.Context, source.Sink) error { return nil }

func endpoints(n int) []plan.Endpoint {
	var out []plan.Endpoint
	for i := range n {
		out = append(out, plan.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 8080)})
	}
	return out
}

// testPlan returns a plan with a dual-stack Service, an IPv4 Service with Local policies, and a Service without
// endpoints.
func testPlan() *plan.Plan {
	web := func(f plan.Family) *plan.ServicePort {
		return &plan.ServicePort{
			Name: plan.ServicePortName{Namespace: "default", Name: "a", Protocol: plan.TCP}, Family: f,
			Frontends: []plan.Frontend{{Kind: plan.ClusterIP}}, Pools: [2][]plan.Endpoint{endpoints(3), endpoints(2)},
		}
	}
	drop := plan.Route{Verdict: plan.Drop}
	local := &plan.ServicePort{
		Name: plan.ServicePortName{Namespace: "default", Name: "b", Protocol: plan.UDP}, Family: plan.IPv4,
		Frontends: []plan.Frontend{
			{Kind: plan.ClusterIP, Routes: [3]plan.Route{drop, drop, drop}},
			{Kind: plan.NodePort, Routes: [3]plan.Route{plan.FromOutside: drop}},
		},
		Pools: [2][]plan.Endpoint{endpoints(1), nil},
	}
	reject := plan.Route{Verdict: plan.Reject}
	idle := &plan.ServicePort{
		Name: plan.ServicePortName{Namespace: "default", Name: "c", Protocol: plan.TCP}, Family: plan.IPv4,
		Frontends: []plan.Frontend{{Kind: plan.ClusterIP, Routes: [3]plan.Route{reject, reject, reject}}},
	}
	return &plan.Plan{Services: []*plan.ServicePort{web(plan.IPv4), web(plan.IPv6), local, idle}}
}

func testMetrics() *Metrics {
	now := time.Now()
	slice := fault.Object{Kind: "EndpointSlice", Namespace: "default", Name: "a-1"}
	state := pipeline.State{
		Snapshot:    &tracker.Snapshot{Problems: []fault.Fault{{Object: slice, Field: "ports[0]"}, {Object: slice, Field: "ports[1]"}}},
		AppliedPlan: testPlan(), OutOfSyncSince: now.Add(-3 * time.Second), QueuedAt: now.Add(-3 * time.Second),
		Backend:      pipeline.StageState{Name: "nftables", LastSync: now.Add(-time.Minute), LastErr: now.Add(-time.Second), DriftRepairs: 2},
		Followers:    []pipeline.StageState{{Name: "conntrack"}},
		PlanProblems: []fault.Fault{{Object: fault.Object{Kind: "Service", Namespace: "default", Name: "c"}}},
		Quarantined:  []pipeline.QuarantinedVersion{{Name: plan.ServicePortName{Namespace: "default", Name: "d"}}},
	}
	return New(Options{
		Version: "1.2.3", Revision: "abc", Backend: "nftables", Mode: "a mode", Families: []plan.Family{plan.IPv4, plan.IPv6},
		State: func() pipeline.State { return state },
		Tracker: func() tracker.Stats {
			return tracker.Stats{
				Layers:   []tracker.LayerStats{{Name: "kube", Objects: map[string]int{source.KindService: 4}}},
				Services: tracker.Changes{Total: 7, Pending: 1}, Endpoints: tracker.Changes{Total: 9},
			}
		},
		Sources: []source.Source{
			fixedSource{"file", source.Status{}},
			fixedSource{"kube", source.Status{Synced: true, LastContact: now.Add(-90 * time.Second)}},
		},
		SavedAt:  func() time.Time { return now.Add(-time.Hour) },
		Expiries: func() map[string]time.Time { return map[string]time.Time{"token": time.Unix(2000000000, 0)} },
		Faults:   func() map[string]bool { return map[string]bool{"ip-forward": true, "first-sync": false} },
		OnPanic:  func(error) {}, Connections: func() map[proxiers.Frontends]uint64 { return nil },
		Proxiers: []prometheus.Collector{localnodeport.New(localnodeport.Options{}), healthcheck.New(healthcheck.Options{})},
	})
}

// manyConnections returns connection counts for maxServicePorts + 2 ports.
func manyConnections() map[proxiers.Frontends]uint64 {
	counts := map[proxiers.Frontends]uint64{}
	for i := range maxServicePorts + 2 {
		name := plan.ServicePortName{Namespace: "default", Name: fmt.Sprint("s", i), Port: "http", Protocol: plan.TCP}
		counts[proxiers.Frontends{Name: name, Kind: plan.ClusterIP}] = uint64(i + 1)
	}
	return counts
}

func TestConnectionsHaveBoundedLabels(t *testing.T) {
	const name = "edgeway_service_connections_total"
	m := testMetrics()
	opts := m.opts
	opts.Connections = manyConnections
	got := regexp.MustCompile(name+"{.*\n").FindAllString(scrapeText(t, New(opts)), -1)
	busiest := name + `{frontend="ClusterIP",namespace="default",port="http",protocol="TCP",service="s1001"} 1002`
	rest := name + `{frontend="",namespace="",port="",protocol="",service=""} 3`
	if all := strings.Join(got, ""); len(got) != maxServicePorts+1 || !strings.Contains(all, busiest) ||
		!strings.Contains(all, rest) {
		t.Errorf("%d series, without %s or %s", len(got), busiest, rest)
	}
}

// scrapeText returns the metrics in text format, without the Go runtime and process metrics.
func scrapeText(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler(HandlerOptions{Config: func() string { return "" }}).ServeHTTP(rec,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("/metrics: %d %s", rec.Code, rec.Body)
	}
	var out strings.Builder
	for line := range strings.Lines(rec.Body.String()) {
		if strings.Contains(line, "edgeway_") || strings.Contains(line, "kubeproxy_") {
			out.WriteString(line)
		}
	}
	return regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(out.String(), `goversion="go"`)
}

func TestExpositionGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		m := testMetrics()
		m.RecordApply(pipeline.ApplyResult{Stage: "nftables", Full: true, Duration: 1200 * time.Millisecond})
		m.RecordApply(pipeline.ApplyResult{Stage: "nftables", Duration: 6 * time.Millisecond})
		m.RecordApply(pipeline.ApplyResult{Stage: "nftables", Duration: 5 * time.Millisecond, Err: errors.New("no")})
		m.RecordApply(pipeline.ApplyResult{Stage: "conntrack", Duration: time.Millisecond})
		m.RecordSync(nil, nil, pipeline.SyncResult{
			Start: time.Now(), Duration: 20 * time.Millisecond, Triggers: []time.Time{time.Now().Add(-time.Second)},
		})
		m.RecordHealthAnswer("/healthz", 200)
		m.RecordHealthAnswer("/livez", 503)
		m.RecordHealthAnswer("/readyz", 200)

		got := scrapeText(t, m)
		const golden = "testdata/exposition.txt"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("exposition differs (go test -update writes it anew):\n%s", diff)
		}
	})
}

func TestOwnMetricsPassLint(t *testing.T) {
	m := testMetrics()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "edgeway_") {
			own++
		}
	}
	if own < 14 {
		t.Errorf("only %d own metrics were gathered", own)
	}
	for _, p := range problems {
		// Some of kube-proxy's metric names violate promlint's rules.
		if !strings.HasPrefix(p.Metric, "kubeproxy_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestServerHasKubeProxyPages(t *testing.T) {
	from := "127.0.0.1:1"
	get := func(opts HandlerOptions, path string) *httptest.ResponseRecorder {
		opts.Config = func() string { return "version = 1\n" }
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		req.RemoteAddr = from
		testMetrics().Handler(opts).ServeHTTP(rec, req)
		return rec
	}
	for path, want := range map[string]string{"/healthz": "ok", "/proxyMode": "a mode", "/configz": "version = 1\n"} {
		if got := get(HandlerOptions{}, path); got.Code != 200 || got.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", path, got.Code, got.Body, want)
		}
	}
	for path, want := range map[string]int{"/livez": 404, "/nothing": 404, "/debug/pprof/": 404} {
		if got := get(HandlerOptions{}, path); got.Code != want {
			t.Errorf("%s: %d, want %d", path, got.Code, want)
		}
	}
	if got := get(HandlerOptions{Pprof: true}, "/debug/pprof/"); got.Code != 200 {
		t.Errorf("/debug/pprof/ when enabled: %d", got.Code)
	}
	for profiling, want := range map[bool]string{
		false: "/metrics\n/healthz\n/proxyMode\n/configz\n",
		true:  "/metrics\n/healthz\n/proxyMode\n/configz\n/debug/pprof/\n",
	} {
		page := get(HandlerOptions{Pprof: profiling}, "/")
		if page.Code != 200 || page.Body.String() != want {
			t.Errorf("/: %d %q, want %q", page.Code, page.Body, want)
		}
		for path := range strings.Lines(page.Body.String()) {
			if got := get(HandlerOptions{Pprof: profiling}, strings.TrimSpace(path)); got.Code != 200 {
				t.Errorf("%s, which / lists: %d", path, got.Code)
			}
		}
	}
	from = "192.0.2.1:1"
	for users, want := range map[bool]int{false: 404, true: 200} {
		opts := HandlerOptions{Pprof: true, HasUsers: func() bool { return users }}
		for _, path := range []string{
			"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol",
			"/debug/pprof/heap",
		} {
			if got := get(opts, path); got.Code != want {
				t.Errorf("%s for another host, users %t: %d, want %d", path, users, got.Code, want)
			}
		}
	}
	if got := get(HandlerOptions{}, "/configz"); got.Code != 404 || strings.Contains(got.Body.String(), "version") {
		t.Errorf("/configz tells another host %d %q", got.Code, got.Body)
	}
}

func TestScrapeBeforeFirstSync(t *testing.T) {
	m := New(Options{
		Backend: "nftables", State: func() pipeline.State { return pipeline.State{} },
		Tracker: func() tracker.Stats { return tracker.Stats{} }, SavedAt: func() time.Time { return time.Time{} },
		Expiries: func() map[string]time.Time { return nil }, Faults: func() map[string]bool { return nil },
		OnPanic: func(error) {}, Connections: func() map[proxiers.Frontends]uint64 { return nil },
	})
	got := scrapeText(t, m)
	if !strings.Contains(got, "edgeway_programmed_services 0") ||
		strings.Contains(got, "edgeway_last_known_age_seconds") || strings.Contains(got, "iptables") {
		t.Errorf("exposition of a daemon that has done nothing:\n%s", got)
	}
}
