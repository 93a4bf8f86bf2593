package planner

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Rows 4 and 18 to 23: each frontend of each family, and none in a family without a ClusterIP.
func TestFrontendsOfAService(t *testing.T) {
	svc := testService("svc", everywhere, func(s *source.Service) {
		s.ExternalIPs = append(s.ExternalIPs, ip("2001:db8:1::10"))
		s.LoadBalancerIPs = append(s.LoadBalancerIPs, ip("2001:db8:1::20"))
	})
	w := newWorld(t, testOptions(), svc)
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.10:80", "LoadBalancerIP 198.51.100.20:80", "NodePort port 30080/TCP")
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

// A family that is not wanted, or that the host does not have, is left out.
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
	w.host.Addrs = w.host.Addrs[:2] // IPv4 alone
	w.Planner, w.plan = New(testOptions()), nil
	w.replan()
	if w.find("svc", plan.IPv4) == nil || w.find("svc", plan.IPv6) != nil {
		t.Error("a host without IPv6")
	}
}

// The oldest Service has an address and port; the loser loses only that, and gets it when the owner goes.
func TestOwnership(t *testing.T) {
	at := func(day int) func(*source.Service) {
		return func(s *source.Service) { s.Created = time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC) }
	}
	external := func(s *source.Service) { s.ExternalIPs = ips("198.51.100.10") }
	clusterIP := func(addr string) func(*source.Service) {
		return func(s *source.Service) { s.ClusterIPs = ips(addr) }
	}
	old := testService("old", external, at(1), clusterIP("10.96.0.1"))
	young := testService("young", external, at(2), clusterIP("10.96.0.2"))
	w := newWorld(t, testOptions(), young)
	w.wantFrontends("young", "ClusterIP 10.96.0.2:80", "ExternalIP 198.51.100.10:80")

	w.put(old) // comes later, but is older
	w.wantFrontends("old", "ClusterIP 10.96.0.1:80", "ExternalIP 198.51.100.10:80")
	w.wantFrontends("young", "ClusterIP 10.96.0.2:80")
	w.wantProblems("Service ns/young: spec.externalIPs: 198.51.100.10:80/TCP belongs to Service ns/old")

	other := testService("other", external, at(3), clusterIP("10.96.0.3"), func(s *source.Service) { s.Ports[0].Protocol = plan.UDP })
	w.put(other) // another protocol is another thing
	w.wantProblems("Service ns/young: spec.externalIPs: 198.51.100.10:80/TCP belongs to Service ns/old")

	w.put(testService("old", at(1), clusterIP("10.96.0.1"))) // gives it up
	w.wantFrontends("young", "ClusterIP 10.96.0.2:80", "ExternalIP 198.51.100.10:80")
	w.wantProblems()

	w.put(old)
	w.remove(old)
	w.wantFrontends("young", "ClusterIP 10.96.0.2:80", "ExternalIP 198.51.100.10:80")
	w.wantProblems()
}

// Same age: the lower UID, then the name. Kinds do not matter: an address is an address.
func TestOwnershipTies(t *testing.T) {
	a := testService("a", func(s *source.Service) { s.UID = "2" })
	b := testService("b", func(s *source.Service) {
		s.UID, s.ClusterIPs, s.LoadBalancerIPs = "1", ips("10.96.0.11"), ips("10.96.0.10")
	})
	w := newWorld(t, testOptions(), a, b)
	w.wantFrontends("b", "ClusterIP 10.96.0.11:80", "LoadBalancerIP 10.96.0.10:80")
	w.wantFrontends("a")
	w.wantProblems("Service ns/a: spec.clusterIPs: 10.96.0.10:80/TCP belongs to Service ns/b")
	b2 := testService("b", func(s *source.Service) { s.UID = "2" })
	w.put(b2)
	w.wantFrontends("a", "ClusterIP 10.96.0.10:80")
	w.wantFrontends("b")
}

// Row 20: a NodePort is the host's, whatever the family; a healthCheckNodePort is one too.
func TestOwnershipOfNodePorts(t *testing.T) {
	four := testService("four", func(s *source.Service) { s.Ports[0].NodePort = 30080 })
	six := testService("six", func(s *source.Service) { s.ClusterIPs, s.Ports[0].NodePort = ips("fd00:96::1"), 30080 })
	w := newWorld(t, testOptions(), four, six)
	w.wantProblems("Service ns/six: spec.ports[0].nodePort: port 30080/TCP belongs to Service ns/four")
	w.put(testService("check", func(s *source.Service) {
		s.ClusterIPs, s.ExternalLocal, s.HealthCheckNodePort = ips("10.96.0.3"), true, 30080
	}))
	if len(w.plan.HealthChecks) != 1 {
		t.Errorf("health checks: %v", w.plan.HealthChecks) // "check" sorts before "four" by UID
	}
	w.wantProblems("Service ns/four: spec.ports[0].nodePort: port 30080/TCP belongs to Service ns/check",
		"Service ns/six: spec.ports[0].nodePort: port 30080/TCP belongs to Service ns/check")
}

// One address in two fields of one Service is no clash: the field whose limits must hold wins.
func TestAddressTwiceInOneService(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc", func(s *source.Service) {
		s.ExternalIPs = ips("198.51.100.10", "198.51.100.10", "10.96.0.10")
		s.LoadBalancerIPs = ips("198.51.100.10")
		s.SourceRanges = cidrs("203.0.113.0/24")
	}))
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "LoadBalancerIP 198.51.100.10:80")
	w.wantProblems()
}

// CVE-2020-8554: nobody gets the host's addresses, nor the API server's.
func TestRefusedAddresses(t *testing.T) {
	opts := testOptions()
	opts.APIServerAddrs = ips("198.51.100.7", "10.96.0.1")
	opts.AllowExternalIPs = cidrs("198.51.100.0/24", "192.0.2.0/24")
	greedy := testService("greedy", func(s *source.Service) {
		s.ClusterIPs = ips("10.96.0.1") // the API server by its ClusterIP is as it should be
		s.ExternalIPs = ips(hostIP, "198.51.100.7", "203.0.113.1", "198.51.100.10")
		s.LoadBalancerIPs = ips("192.0.2.99", "198.51.100.7", "203.0.113.2")
	})
	w := newWorld(t, opts, greedy)
	w.put(&source.Node{Name: hostName, Addresses: ips(hostIP, "192.0.2.99")})
	w.wantFrontends("greedy", "ClusterIP 10.96.0.1:80", "ExternalIP 198.51.100.10:80", "LoadBalancerIP 203.0.113.2:80")
	w.wantProblems(
		"Service ns/greedy: status.loadBalancer.ingress: 192.0.2.99 is an address of this host",
		"Service ns/greedy: status.loadBalancer.ingress: 198.51.100.7 is the API server's address",
		"Service ns/greedy: spec.externalIPs: 192.0.2.1 is an address of this host",
		"Service ns/greedy: spec.externalIPs: 198.51.100.7 is the API server's address",
		"Service ns/greedy: spec.externalIPs: 203.0.113.1 is not among the external IPs that are allowed",
	)
	// A refused claim is none: the next one gets it when it may have it.
	w.put(testService("modest", func(s *source.Service) {
		s.UID, s.ClusterIPs, s.LoadBalancerIPs = "zzz", ips("10.96.0.2"), ips("203.0.113.1")
	}))
	w.wantFrontends("modest", "ClusterIP 10.96.0.2:80", "LoadBalancerIP 203.0.113.1:80")

	w.host = testHost()
	w.host.Addrs[1].Addr = ip("10.96.0.2") // the host takes the address of a Service
	w.replan()
	w.wantFrontends("modest", "LoadBalancerIP 203.0.113.1:80")
}

// Row 24: source ranges hold for load-balancer addresses alone, family by family.
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
			w := newWorld(t, testOptions(), testService("svc", everywhere, func(s *source.Service) { s.SourceRanges, s.NoSources = c.ranges, c.none }))
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

// Section 2.3 of the semantics: distinct addresses of ready endpoints on this host.
func TestHealthChecks(t *testing.T) {
	lb := testService("lb", everywhere, func(s *source.Service) {
		s.ExternalLocal, s.HealthCheckNodePort = true, 32000
		s.ClusterIPs = ips("10.96.0.10", "fd00:96::10")
	})
	four := testSlice("lb", ep("10.1.0.1", "here"), ep("10.1.0.2", "here"), ep("10.1.0.3", "here", "stopping"), ep("10.2.0.1"))
	again, six := testSlice("lb", ep("10.1.0.1", "here")), testSlice("lb", ep("fd00:1::1", "here"), ep("fd00:1::2", "here"))
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
