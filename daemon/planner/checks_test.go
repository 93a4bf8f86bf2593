package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func ports(list ...string) (out []netip.AddrPort) {
	for _, s := range list {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

func deadSet(list ...netip.AddrPort) *endpointcheck.DeadEndpoints {
	d := &endpointcheck.DeadEndpoints{Faults: map[netip.AddrPort]fault.Fault{}}
	for _, at := range list {
		d.Faults[at] = fault.Fault{Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Message: "connection refused"}
	}
	return d
}

// checkedFixture is a test fixture in which Edgeway checks all endpoints. Initially, all endpoints respond.
type checkedFixture struct {
	*world
	dead *endpointcheck.DeadEndpoints
}

func newCheckedFixture(t *testing.T, opts Options, objects ...source.Object) *checkedFixture {
	w := &checkedFixture{}
	opts.Checks = Checks{
		Manifests: true, API: true, DeadEndpoints: func() *endpointcheck.DeadEndpoints { return w.dead },
	}
	w.world = newWorld(t, opts, objects...)
	return w
}

// markDead marks the listed endpoints as dead and all others as alive, and computes a plan.
func (w *checkedFixture) markDead(list ...string) {
	w.Helper()
	w.dead = deadSet(ports(list...)...)
	w.replan()
}

func (w *checkedFixture) wantServing(want ...string) {
	w.Helper()
	var got []netip.AddrPort
	for _, e := range w.find("svc", plan.IPv4).Serving {
		got = append(got, e.Addr)
	}
	if !slices.Equal(got, ports(want...)) {
		w.Errorf("serving: %v, want %v", got, want)
	}
}

func TestDeadEndpointLeavesPoolAndReturns(t *testing.T) {
	w := newCheckedFixture(t, testOptions(), testService("svc"),
		testSlice("svc", ep("10.2.0.1"), ep("10.2.0.2"), ep("10.2.0.3", "stopping")))
	before := w.find("svc", plan.IPv4)
	w.markDead("10.2.0.1:8080")
	wantAddrs(t, "pool", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], "10.2.0.2")
	w.wantServing("10.2.0.2:8080", "10.2.0.3:8080")
	w.markDead("10.2.0.1:8081") // another port of the same address
	if after := w.find("svc", plan.IPv4); after.Digest != before.Digest {
		t.Errorf("back again: %+v, want %+v", after, before)
	}
}

func TestLastEndpointStaysInPool(t *testing.T) {
	w := newCheckedFixture(t, testOptions(), testService("svc"),
		testSlice("svc", ep("10.2.0.1"), ep("10.2.0.2"), ep("10.2.0.3", "stopping")))
	w.markDead("10.2.0.1:8080", "10.2.0.2:8080")
	wantAddrs(t, "all dead", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], "10.2.0.1", "10.2.0.2")
	w.wantServing("10.2.0.1:8080", "10.2.0.2:8080", "10.2.0.3:8080")
	w.markDead("10.2.0.1:8080")
	wantAddrs(t, "one is back", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], "10.2.0.2")
	w.put(testSlice("svc", ep("10.2.0.1"), ep("10.2.0.2", "unready")))
	wantAddrs(t, "the one that was back is not ready", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], "10.2.0.1")
}

func TestTopologyIgnoresDeadEndpoints(t *testing.T) {
	opts := testOptions()
	opts.Node.Zone = "z1"
	w := newCheckedFixture(t, opts, testService("svc"),
		testSlice("svc", ep("10.2.0.1", "zone=z1"), ep("10.2.0.2", "zone=z2"), ep("10.2.0.3", "zone=z1")))
	w.markDead("10.2.0.1:8080")
	wantAddrs(t, "one of the zone is left", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], "10.2.0.3")
	w.markDead("10.2.0.1:8080", "10.2.0.3:8080")
	wantAddrs(t, "none of the zone is left", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], "10.2.0.2")
}

// If no endpoint on this host responds, the local pool keeps the dead endpoints, because the Local policy would
// otherwise drop connections. The health check port still reports no local endpoint to load balancers, unless the
// endpoints on all other hosts are dead too.
func TestDeadLocalEndpoints(t *testing.T) {
	local := testService("svc", everywhere,
		func(s *source.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, 32000 })
	w := newCheckedFixture(t, testOptions(), local,
		testSlice("svc", ep("10.1.0.1", "here"), ep("10.1.0.2", "here"), ep("10.2.0.1")))
	for _, c := range []struct {
		dead, cluster, local, serving []string
		ready                         int
	}{
		{nil, []string{"10.1.0.1", "10.1.0.2", "10.2.0.1"}, []string{"10.1.0.1", "10.1.0.2"}, []string{"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"}, 2},
		{[]string{"10.1.0.1:8080"}, []string{"10.1.0.2", "10.2.0.1"}, []string{"10.1.0.2"}, []string{"10.1.0.2:8080", "10.2.0.1:8080"}, 1},
		{
			[]string{"10.1.0.1:8080", "10.1.0.2:8080"},
			[]string{"10.2.0.1"},
			[]string{"10.1.0.1", "10.1.0.2"},
			[]string{"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"},
			0,
		},
		{
			[]string{"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"},
			[]string{"10.1.0.1", "10.1.0.2", "10.2.0.1"},
			[]string{"10.1.0.1", "10.1.0.2"},
			[]string{"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"},
			2,
		},
	} {
		w.markDead(c.dead...)
		sp := w.find("svc", plan.IPv4)
		wantAddrs(t, "cluster pool", sp.Pools[plan.ClusterPool], c.cluster...)
		wantAddrs(t, "local pool", sp.Pools[plan.LocalPool], c.local...)
		w.wantServing(c.serving...)
		if got := w.plan.HealthChecks[0].LocalReady; got != c.ready {
			t.Errorf("dead are %v: %d local endpoints, want %d", c.dead, got, c.ready)
		}
	}
	w.put(testService("svc")) // no frontend uses the local pool
	w.markDead("10.1.0.1:8080", "10.1.0.2:8080")
	w.wantServing("10.2.0.1:8080")
}

func dns(s *source.Service) {
	s.Ports = []source.ServicePort{
		{Name: "dns", Protocol: plan.UDP, Port: 53}, {Name: "dns-tcp", Protocol: plan.TCP, Port: 53}, {Name: "metrics", Protocol: plan.TCP, Port: 9153},
	}
}

func dnsSlice(endpoints ...source.Endpoint) *source.EndpointSlice {
	s := testSlice("svc", endpoints...)
	s.Ports = []source.SlicePort{
		{Name: "dns", Protocol: plan.UDP, Port: 53}, {Name: "dns-tcp", Protocol: plan.TCP, Port: 53}, {Name: "metrics", Protocol: plan.TCP, Port: 9153},
	}
	return s
}

// A UDP endpoint counts as dead if all TCP ports in its EndpointSlice are dead at its address, because Edgeway cannot
// check a UDP port.
func TestUDPEndpointFollowsTCPPorts(t *testing.T) {
	w := newCheckedFixture(t, testOptions(), testService("svc", dns), dnsSlice(ep("10.2.0.1"), ep("10.2.0.2")))
	pool := func(port string, protocol plan.Protocol) []plan.Endpoint {
		return w.plan.Find(plan.ServicePortName{Namespace: "ns", Name: "svc", Port: port, Protocol: protocol},
			plan.IPv4).Pools[plan.ClusterPool]
	}
	w.markDead("10.2.0.1:9153")
	wantAddrs(t, "metrics", pool("metrics", plan.TCP), "10.2.0.2")
	wantAddrs(t, "dns over TCP", pool("dns-tcp", plan.TCP), "10.2.0.1", "10.2.0.2")
	wantAddrs(t, "dns", pool("dns", plan.UDP), "10.2.0.1", "10.2.0.2")
	w.markDead("10.2.0.1:9153", "10.2.0.1:53")
	wantAddrs(t, "dns over TCP", pool("dns-tcp", plan.TCP), "10.2.0.2")
	wantAddrs(t, "dns", pool("dns", plan.UDP), "10.2.0.2")
	w.put(testService("svc", dns, func(s *source.Service) { s.Ports = s.Ports[:1] }))
	wantAddrs(t, "dns of a Service without TCP", pool("dns", plan.UDP), "10.2.0.1", "10.2.0.2")
}

func TestChecksFollowSourceSettings(t *testing.T) {
	manifest := testSlice("file", ep("10.2.0.1"), ep("10.2.0.2"))
	manifest.Manifest = true
	other := testService("file", func(s *source.Service) { s.ClusterIPs = ips("10.96.0.11") })
	dead := deadSet(ports("10.2.0.1:8080")...)
	for _, c := range []struct{ manifests, api bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		opts := testOptions()
		opts.Checks = Checks{
			Manifests: c.manifests, API: c.api, DeadEndpoints: func() *endpointcheck.DeadEndpoints { return dead },
		}
		w := newWorld(t, opts, testService("svc"), testSlice("svc", ep("10.2.0.1"), ep("10.2.0.3")), other, manifest)
		fromFile, fromAPI := []string{"10.2.0.1", "10.2.0.2"}, []string{"10.2.0.1", "10.2.0.3"}
		if c.manifests {
			fromFile = fromFile[1:]
		}
		if c.api {
			fromAPI = fromAPI[1:]
		}
		wantAddrs(t, "of a manifest", w.find("file", plan.IPv4).Pools[plan.ClusterPool], fromFile...)
		wantAddrs(t, "of the API", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], fromAPI...)
	}
}

func (w *checkedFixture) wantTargets(what string, all bool, add, drop []netip.AddrPort) {
	w.Helper()
	got := w.CheckChanges()
	slices.SortFunc(got.Add, netip.AddrPort.Compare)
	slices.SortFunc(got.Drop, netip.AddrPort.Compare)
	if got.All != all || !slices.Equal(got.Add, add) || !slices.Equal(got.Drop, drop) {
		w.Errorf("%s: to check is %+v, want to add %v and to drop %v", what, got, add, drop)
	}
}

// The first call to CheckChanges returns each endpoint of a TCP port once. Later calls return only the changes.
func TestCheckedTargets(t *testing.T) {
	second := testService("second", func(s *source.Service) { s.ClusterIPs = ips("10.96.0.11") })
	w := newCheckedFixture(t, testOptions(), testService("svc"), second,
		testSlice("svc", ep("10.2.0.1"), ep("10.2.0.2"), ep("10.2.0.3", "unready"), ep("10.2.0.4", "stopping")),
		testSlice("second", ep("10.2.0.2")))
	w.wantTargets("at first", true, ports("10.2.0.1:8080", "10.2.0.2:8080"), nil)
	w.replan()
	w.wantTargets("no change", false, nil, nil)
	w.markDead("10.2.0.1:8080")
	w.wantTargets("a dead one is checked on", false, nil, nil)
	w.put(testSlice("svc", ep("10.2.0.3")))
	w.wantTargets("another Service has one of them", false, ports("10.2.0.3:8080"), ports("10.2.0.1:8080"))
	w.put(testSlice("second", ep("10.2.0.3")))
	w.put(testSlice("second", ep("10.2.0.2"), ep("10.2.0.5")))
	w.wantTargets("it went and came back", false, ports("10.2.0.5:8080"), nil)
	w.remove(second)
	w.wantTargets("the Service is gone", false, nil, ports("10.2.0.2:8080", "10.2.0.5:8080"))
	w.put(testService("svc", dns), dnsSlice(ep("10.2.0.1")))
	w.wantTargets("UDP is not checked", false, ports("10.2.0.1:53", "10.2.0.1:9153"), ports("10.2.0.3:8080"))
}

// Edgeway checks only endpoints in the plan, so a Service's author cannot cause this host to connect to any other
// address.
func TestCheckedTargetsAreInPlan(t *testing.T) {
	opts := testOptions()
	opts.Proxy.DenyEndpoints.Prefixes = cidrs("10.3.0.0/16")
	with := func(name string, vips []netip.Addr, endpoint string) []source.Object {
		svc := testService(name, func(s *source.Service) { s.ClusterIPs = vips })
		return []source.Object{svc, testSlice(name, ep(endpoint), ep("10.3.0.1"))}
	}
	var all []source.Object
	all = append(all, with("svc", ips("10.96.0.10"), "10.2.0.1")...)
	all = append(all, with("usurper", ips("10.96.0.10"), "10.2.0.2")...)
	all = append(all, with("headless", nil, "10.2.0.3")...)
	w := newCheckedFixture(t, opts, append(all, testSlice("absent", ep("10.2.0.4")))...)
	w.wantTargets("of all", true, ports("10.2.0.1:8080"), nil)
}

func TestOutReasons(t *testing.T) {
	w := newCheckedFixture(t, testOptions(), testService("svc", dns),
		dnsSlice(ep("10.2.0.2"), ep("10.2.0.1"), ep("10.2.0.3", "unready")))
	out := func(port string, protocol plan.Protocol) []string {
		snap := w.snap
		name := plan.ServicePortName{Namespace: "ns", Name: "svc", Port: port, Protocol: protocol}
		return w.opts.Checks.DescribeDead(snap.Services[0], w.plan.Find(name, plan.IPv4))
	}
	const refused = ":53 does not answer since 2026-01-01T00:00:00Z: connection refused"
	w.markDead("10.2.0.1:53", "10.2.0.1:9153", "10.2.0.3:53")
	if got := out("dns-tcp", plan.TCP); !slices.Equal(got, []string{"10.2.0.1" + refused}) {
		t.Errorf("TCP: %q", got)
	}
	if got := out("dns", plan.UDP); !slices.Equal(got,
		[]string{"10.2.0.1:53 does not answer at any of its TCP ports"}) {
		t.Errorf("UDP: %q", got)
	}
	w.markDead("10.2.0.1:53", "10.2.0.1:9153", "10.2.0.2:53", "10.2.0.2:9153")
	for _, protocol := range []plan.Protocol{plan.TCP, plan.UDP} {
		port := map[plan.Protocol]string{plan.TCP: "dns-tcp", plan.UDP: "dns"}[protocol]
		got := out(port, protocol)
		if len(got) != 2 || !strings.HasPrefix(got[0], "10.2.0.1:53 does not answer ") ||
			!strings.HasSuffix(got[1], "; the endpoint stays in use if no other endpoint responds") {
			t.Errorf("%s: all stay, and out are %q", protocol, got)
		}
	}
}
