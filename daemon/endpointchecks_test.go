package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/journal"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func deadEndpoint(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func checking(sources ...config.CheckedSource) *config.Config {
	cfg := config.Default()
	cfg.Checks.TCP = config.TCPChecks{
		Sources: sources, Interval: 500 * time.Millisecond, Failures: 2,
	}
	return cfg
}

func runChecks(t *testing.T, c *endpointChecks, dead int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := make(chan struct{})
	c.run(func(_ string, run func(context.Context) error) {
		go func() {
			defer close(done)
			_ = run(ctx)
		}()
	})
	for c.endpoints.DeadEndpoints().Len() != dead {
		select {
		case <-ctx.Done():
			t.Fatalf("%d endpoints are dead, want %d", c.endpoints.DeadEndpoints().Len(), dead)
		case <-c.endpoints.Changed():
		}
	}
	stop()
	<-done
}

// Endpoint check results survive a reload, unless the new configuration disables endpoint checks.
func TestEndpointVerdictsSurviveReload(t *testing.T) {
	endpoints := endpointcheck.New(journal.NewDamper(slog.New(slog.DiscardHandler)))
	at := deadEndpoint(t)
	c := newEndpointChecks(checking(config.CheckedFile), endpoints)
	if !c.of.Manifests || c.of.API || c.faults(nil) != nil || c.status() == nil {
		t.Errorf("before the first check: %+v", c)
	}
	endpoints.UpdateTargets(endpointcheck.Targets{All: true, Add: []netip.AddrPort{at}})
	runChecks(t, c, 1)
	next := newEndpointChecks(checking(config.CheckedKube, config.CheckedFile), endpoints)
	if !next.of.Manifests || !next.of.API || !next.of.DeadEndpoints().Has(at) {
		t.Errorf("after a reload: %+v, dead are %v", next.of, next.of.DeadEndpoints())
	}
	cond := next.faults(nil)
	if len(cond) != 1 || cond[0].Severity != fault.Warning || cond[0].Since.IsZero() ||
		!strings.HasPrefix(cond[0].Message, "the endpoint "+at.String()+" does not answer (connection refused)") {
		t.Errorf("faults: %+v", cond)
	}
	if st := next.status(); st.Dead != 1 || st.Endpoints != 1 {
		t.Errorf("status: %+v", st)
	}
	off := newEndpointChecks(checking(), endpoints)
	off.run(func(string, func(context.Context) error) { t.Error("what is off runs") })
	if off.faults(nil) != nil || off.status() != nil ||
		endpoints.DeadEndpoints().Len() != 0 || endpoints.CountEndpoints() != 0 {
		t.Errorf("turned off: %+v", off)
	}
}

func TestDeadManifestEndpointLeavesPool(t *testing.T) {
	at := deadEndpoint(t)
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	alive := l.Addr().(*net.TCPAddr).AddrPort()
	slice := func(name string, at netip.AddrPort) *source.EndpointSlice {
		return &source.EndpointSlice{
			Namespace: "a", Name: name, Service: "web", Family: plan.IPv4, Manifest: true,
			Ports:     []source.SlicePort{{Protocol: plan.TCP, Port: at.Port()}},
			Endpoints: []source.Endpoint{{Addr: at.Addr(), Ready: true, Serving: true}},
		}
	}
	tr := tracker.New(tracker.Layer{Name: fileLayer})
	sink := tr.Sink(fileLayer)
	sink.Upsert(&source.Service{
		Namespace: "a", Name: "web", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports: []source.ServicePort{{Protocol: plan.TCP, Port: 80}},
	})
	sink.Upsert(slice("one", at))
	sink.Upsert(slice("two", alive))
	sink.Synced()
	snap, _ := tr.Snapshot()

	c := newEndpointChecks(checking(config.CheckedFile),
		endpointcheck.New(journal.NewDamper(slog.New(slog.DiscardHandler))))
	p := planner.New(planner.Options{Families: []plan.Family{plan.IPv4}, Checks: c.of})
	host := &nodeinfo.Host{}
	first, _ := p.Plan(snap, host, nil)
	c.follow(p)
	if n := len(first.Services[0].Pools[plan.ClusterPool]); n != 2 {
		t.Fatalf("%d endpoints at first", n)
	}
	runChecks(t, c, 1)
	next, _ := p.Plan(snap, host, first)
	if pool := next.Services[0].Pools[plan.ClusterPool]; len(pool) != 1 || pool[0].Addr != alive {
		t.Errorf("the pool is %v, want %s alone", pool, alive)
	}
	out := c.describeDead(pipeline.State{Snapshot: snap}, next.Services[0])
	if len(out) != 1 || !strings.HasPrefix(out[0], at.String()+" does not answer since ") {
		t.Errorf("out are %q", out)
	}
}

// A port with only dead endpoints is a problem, because connections to it fail.
func TestServicesWithoutLiveEndpoint(t *testing.T) {
	at := netip.MustParseAddrPort
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dead := &endpointcheck.DeadEndpoints{Faults: map[netip.AddrPort]fault.Fault{
		at("10.1.0.1:80"): {Since: since, Message: "connection refused"},
		at("10.1.0.2:80"): {Since: since.Add(time.Minute), Message: "no answer"},
	}}
	port := func(name string, r plan.Route, cluster, local []string) *plan.ServicePort {
		sp := &plan.ServicePort{
			Name:   plan.ServicePortName{Namespace: "a", Name: name, Protocol: plan.TCP},
			Family: plan.IPv4,
		}
		sp.Frontends = []plan.Frontend{{Routes: [3]plan.Route{{Verdict: plan.Forward}, {Verdict: plan.Forward}, r}}}
		for pool, list := range map[plan.Pool][]string{plan.ClusterPool: cluster, plan.LocalPool: local} {
			for _, a := range list {
				sp.Pools[pool] = append(sp.Pools[pool], plan.Endpoint{Addr: at(a)})
			}
		}
		return sp
	}
	cluster, local := plan.Route{Verdict: plan.Forward}, plan.Route{Verdict: plan.Forward, Pool: plan.LocalPool}
	both, living := []string{"10.1.0.1:80", "10.1.0.2:80"}, []string{"10.1.0.3:80"}
	alive := port("alive", cluster, living, both) // no frontend uses the local pool
	for name, c := range map[string]struct {
		services []*plan.ServicePort
		want     string // want is the message of the first fault
	}{
		"none":               {[]*plan.ServicePort{alive, port("empty", cluster, nil, nil)}, ""},
		"one":                {[]*plan.ServicePort{alive, port("web", cluster, both, nil)}, "connections to a/web/TCP (IPv4) fail: no endpoint answers (for example 10.1.0.1:80: connection refused)"},
		"those of this host": {[]*plan.ServicePort{port("web", local, living, both)}, "connections to a/web/TCP (IPv4) fail: no endpoint answers (for example 10.1.0.1:80: connection refused)"},
		"two":                {[]*plan.ServicePort{port("web", cluster, both, nil), port("x", cluster, both[1:], nil)}, "connections to a/web/TCP (IPv4) fail: no endpoint answers (for example 10.1.0.1:80: connection refused)"},
	} {
		var d deadPoolFinder
		got := d.faults(&plan.Plan{Services: c.services}, dead)
		if len(got) == 0 && c.want == "" {
			continue
		}
		if wants := map[bool]int{true: 2, false: 1}[name == "two"]; len(got) != wants ||
			got[0].Scope.ServicePort != "a/web/TCP" || got[0].Severity != fault.Problem || got[0].Message != c.want ||
			!got[0].Since.Equal(since.Add(time.Minute)) ||
			got[0].Fix != "edgeway doctor --connect a/web --trace  # if no rule or route is at fault, start the program that should listen on 10.1.0.1:80" {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		if again := d.faults(&plan.Plan{Services: []*plan.ServicePort{alive}}, dead); again != nil {
			t.Errorf("%s: it remembers %+v for another plan", name, again)
		}
	}
}
