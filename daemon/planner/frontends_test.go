package planner

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// A Service has all of its frontends in each family where it has a ClusterIP, and no frontends in other families.
func TestServiceFrontends(t *testing.T) {
	svc := testService("svc", everywhere, func(s *source.Service) {
		s.ExternalIPs = append(s.ExternalIPs, ip("2001:db8:1::10"))
		s.LoadBalancerIPs = append(s.LoadBalancerIPs, ip("2001:db8:1::20"))
	})
	w := newWorld(t, testOptions(), svc)
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.10:80", "LoadBalancerIP 198.51.100.20:80",
		"NodePort port 30080/TCP")
	if w.find("svc", plan.IPv6) != nil {
		t.Error("a Service without an IPv6 ClusterIP is there in IPv6")
	}
	w.put(testService("svc", everywhere, func(s *source.Service) {
		s.ClusterIPs, s.LoadBalancerIPs = ips("fd00:96::10"), ips("2001:db8:1::20")
		s.Affinity, s.LongLived = time.Hour, true
	}))
	sp := w.find("svc", plan.IPv6)
	if sp == nil || w.find("svc", plan.IPv4) != nil {
		t.Fatal("a Service that moved to IPv6 is not there, or still in IPv4")
	}
	if len(sp.Frontends) != 3 || sp.Affinity != time.Hour || !sp.LongLived {
		t.Errorf("%+v", sp)
	}
	w.wantProblems()
}

// A Service uses the fast path if the Service or the configuration enables it. SCTP has no fast path, so the planner
// reports a problem.
func TestLongLived(t *testing.T) {
	opts := testOptions()
	opts.FastPath = config.FastPath{
		Enabled:  true,
		Services: []config.ServiceName{{Namespace: "ns", Name: "named"}, {Namespace: "ns", Name: "missing"}},
	}
	two := func(s *source.Service) {
		s.Ports = append(s.Ports, source.ServicePort{Name: "sctp", Protocol: plan.SCTP, Port: 36412})
	}
	w := newWorld(t, opts, testService("named", two),
		testService("other", func(s *source.Service) { s.ClusterIPs = ips("10.96.0.11") }))
	if sp := w.find("named", plan.IPv4); sp == nil || !sp.LongLived {
		t.Errorf("the Service that the operator names: %+v", sp)
	}
	if sp := w.find("other", plan.IPv4); sp == nil || sp.LongLived {
		t.Errorf("a Service that the key does not name: %+v", sp)
	}
	w.wantProblems("fastpath.services: there is no Service ns/missing",
		"Service ns/named: spec.ports[1].protocol: the Service opted in to the fast path, but only TCP and UDP connections can use the fast path")

	opts.FastPath.Enabled = false
	w.Planner = New(opts)
	w.replan()
	if sp := w.find("named", plan.IPv4); sp == nil || sp.LongLived {
		t.Errorf("with the fast path turned off: %+v", sp)
	}
	w.wantProblems()
}

func TestFamilies(t *testing.T) {
	both := func(s *source.Service) { s.ClusterIPs = ips("10.96.0.10", "fd00:96::10") }
	opts := testOptions()
	opts.Families = []plan.Family{plan.IPv6}
	w := newWorld(t, opts, testService("svc", both))
	if w.find("svc", plan.IPv4) != nil || w.find("svc", plan.IPv6) == nil {
		t.Error("families = [IPv6]")
	}
	w = newWorld(t, testOptions(), testService("svc", both))
	if w.find("svc", plan.IPv4) == nil || w.find("svc", plan.IPv6) == nil {
		t.Error("a host with both families")
	}
	w.host.Addrs = w.host.Addrs[:2] // the host has only IPv4 addresses
	w.Planner, w.plan = New(testOptions()), nil
	w.replan()
	if w.find("svc", plan.IPv4) == nil || w.find("svc", plan.IPv6) != nil {
		t.Error("a host without IPv6")
	}
}

// If a Service lists the same address in several fields, the address gets only one frontend. A ClusterIP takes
// precedence over a load-balancer address, and a load-balancer address takes precedence over an external IP.
func TestAddressTwiceInOneService(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc", func(s *source.Service) {
		s.ExternalIPs = ips("198.51.100.10", "198.51.100.10", "10.96.0.10")
		s.LoadBalancerIPs = ips("198.51.100.10")
		s.SourceRanges = cidrs("203.0.113.0/24")
	}))
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "LoadBalancerIP 198.51.100.10:80")
	w.wantProblems()
}

// Source ranges apply only to load-balancer addresses, separately for each family.
func TestSourceRanges(t *testing.T) {
	for name, c := range map[string]struct {
		ranges []netip.Prefix
		none   []plan.Family
		want   []netip.Prefix
	}{
		"no ranges":               {nil, nil, nil},
		"the other family's":      {cidrs("2001:db8::/32"), nil, nil},
		"everybody":               {cidrs("203.0.113.0/24", "0.0.0.0/0"), nil, nil},
		"everybody of the other":  {cidrs("203.0.113.0/24", "::/0"), nil, cidrs("203.0.113.0/24")},
		"masked, sorted, once":    {cidrs("203.0.113.9/24", "10.0.0.0/8", "203.0.113.128/25"), nil, cidrs("10.0.0.0/8", "203.0.113.0/24")},
		"invalid ones alone":      {nil, []plan.Family{plan.IPv4}, []netip.Prefix{}},
		"invalid ones of another": {nil, []plan.Family{plan.IPv6}, nil},
		"with the host":           {cidrs("192.0.2.0/24"), nil, cidrs("192.0.2.0/24", "198.51.100.20/32")},
		"with host and address":   {cidrs("192.0.2.0/24", "198.51.100.0/24"), nil, cidrs("192.0.2.0/24", "198.51.100.0/24")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testOptions(), testService("svc", everywhere,
				func(s *source.Service) { s.SourceRanges, s.BlockedFamilies = c.ranges, c.none }))
			for _, f := range w.find("svc", plan.IPv4).Frontends {
				want := c.want
				if f.Kind != plan.LoadBalancerIP {
					want = nil
				}
				if !slices.Equal(f.AllowFrom, want) || (f.AllowFrom == nil) != (want == nil) {
					t.Errorf("%s: got %v, want %v", f.Kind, f.AllowFrom, want)
				}
			}
		})
	}
}

func TestHealthChecks(t *testing.T) {
	lb := testService("lb", everywhere, func(s *source.Service) {
		s.ExternalLocal, s.HealthCheckNodePort = true, 32000
		s.ClusterIPs = ips("10.96.0.10", "fd00:96::10")
	})
	four := testSlice("lb", ep("10.1.0.1", "here"), ep("10.1.0.2", "here"), ep("10.1.0.3", "here", "stopping"),
		ep("10.2.0.1"))
	again, six := testSlice("lb", ep("10.1.0.1", "here")),
		testSlice("lb", ep("fd00:1::1", "here"), ep("fd00:1::2", "here"))
	again.Name, six.Name = "lb-2", "lb-3"
	w := newWorld(t, testOptions(), lb, four, again, six)
	want := plan.HealthCheck{Namespace: "ns", Name: "lb", Port: 32000, LocalReady: 2}
	if len(w.plan.HealthChecks) != 1 || *w.plan.HealthChecks[0] != want {
		t.Fatalf("got %+v, want %+v", w.plan.HealthChecks[0], want)
	}
	before := w.plan.HealthChecks[0]
	w.put(testSlice("lb", ep("10.1.0.1", "here"), ep("10.1.0.2", "here"), ep("10.2.0.9")))
	if w.plan.HealthChecks[0] != before {
		t.Error("an equal health check is not shared")
	}
	w.remove(four, again, six)
	if got := w.plan.HealthChecks[0].LocalReady; got != 0 {
		t.Errorf("without endpoints: %d", got)
	}
	w.remove(lb)
	if len(w.plan.HealthChecks) != 0 {
		t.Error("the health check outlives its Service")
	}
}
