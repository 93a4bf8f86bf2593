package planner

import (
	"slices"
	"testing"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

func apiServer(addrs ...string) *source.APIServer {
	return &source.APIServer{Name: "https://api.example:6443", Addrs: ips(addrs...)}
}

// A Service from the API server may use an address of the host only if the configuration allows the address, and may
// never use an address of the API server (CVE-2020-8554).
func TestRefusedAddresses(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowExternalIPs.Prefixes = cidrs("198.51.100.0/24", "192.0.2.0/24")
	greedy := testService("greedy", func(s *source.Service) {
		s.ClusterIPs = ips("10.96.0.1")
		s.ExternalIPs = ips(hostIP, "198.51.100.7", "203.0.113.1", "198.51.100.10")
		s.LoadBalancerIPs = ips("192.0.2.99", hostIP6, "198.51.100.7", "203.0.113.2")
	})
	w := newWorld(t, opts, greedy, apiServer("198.51.100.7"))
	w.put(&source.Node{Name: hostName, Addresses: ips(hostIP, "192.0.2.99")})
	w.wantFrontends("greedy", "ClusterIP 10.96.0.1:80", "ExternalIP 198.51.100.10:80", "LoadBalancerIP 203.0.113.2:80")
	w.wantProblems(
		`Service ns/greedy: status.loadBalancer.ingress: 192.0.2.99 is an address of this host, and "host" is not in proxy.allow_load_balancer_ips; fix: proxy.allow_load_balancer_ips = ["0.0.0.0/0", "::/0", "host"]`,
		"Service ns/greedy: status.loadBalancer.ingress: 198.51.100.7 is the API server's address",
		`Service ns/greedy: spec.externalIPs: 192.0.2.1 is an address of this host, and "host" is not in proxy.allow_external_ips; fix: proxy.allow_external_ips = ["198.51.100.0/24", "192.0.2.0/24", "host"]`,
		"Service ns/greedy: spec.externalIPs: 198.51.100.7 is the API server's address",
		`Service ns/greedy: spec.externalIPs: 203.0.113.1 is not in a range of proxy.allow_external_ips; fix: proxy.allow_external_ips = ["198.51.100.0/24", "192.0.2.0/24", "203.0.113.1/32"]`,
	)
	// A refused address has no owner, so another Service can own it.
	w.put(testService("modest", func(s *source.Service) {
		s.UID, s.ClusterIPs, s.LoadBalancerIPs = "zzz", ips("10.96.0.2"), ips("203.0.113.1")
	}))
	w.wantFrontends("modest", "ClusterIP 10.96.0.2:80", "LoadBalancerIP 203.0.113.1:80")

	w.host = testHost()
	w.host.Addrs[1].Addr = ip("10.96.0.2") // the host now has the ClusterIP of a Service
	w.replan()
	w.wantFrontends("modest", "LoadBalancerIP 203.0.113.1:80")
}

// No Service from the API server may use the address of this host's name server, because the host uses the name server
// to find the API server. The address can still be a ClusterIP, for example that of the cluster's DNS Service.
func TestNameServersAreRefused(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowExternalIPs.Prefixes = cidrs("0.0.0.0/0")
	dns := func(s *source.Service) { s.ClusterIPs = ips("10.96.0.10") }
	thief := func(s *source.Service) {
		s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs = ips("10.96.0.20"), ips("192.0.2.2", "10.96.0.10"),
			ips("192.0.2.3")
	}
	w := newWorld(t, opts, testService("thief", thief))
	before := []string{
		"ClusterIP 10.96.0.20:80", "ExternalIP 10.96.0.10:80", "ExternalIP 192.0.2.2:80",
		"LoadBalancerIP 192.0.2.3:80",
	}
	w.wantFrontends("thief", before...)
	w.host = testHost()
	w.host.NameServers = ips("10.96.0.10", "192.0.2.2", "192.0.2.3")
	w.put(testService("dns", dns))
	w.wantFrontends("thief", "ClusterIP 10.96.0.20:80")
	w.wantFrontends("dns", "ClusterIP 10.96.0.10:80")
	w.wantProblems(
		"Service ns/thief: status.loadBalancer.ingress: 192.0.2.3 is a name server of this host",
		"Service ns/thief: spec.externalIPs: 192.0.2.2 is a name server of this host",
		"Service ns/thief: spec.externalIPs: 10.96.0.10 is a name server of this host",
	)
	w.put(testService("thief", thief, func(s *source.Service) { s.Manifest = true })) // only root can write manifests
	w.wantFrontends("thief", "ClusterIP 10.96.0.20:80", "ExternalIP 192.0.2.2:80", "LoadBalancerIP 192.0.2.3:80")
	w.put(testService("thief", thief))
	w.remove(testService("dns", dns))
	w.host = testHost()
	w.replan()
	w.wantFrontends("thief", before...)
}

// If proxy.allow_load_balancer_ips contains "host", Edgeway serves a load-balancer address both before and after a
// virtual router moves it to this host.
func TestLoadBalancerAddressMovesToHost(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowLoadBalancers.Host = true
	w := newWorld(t, opts, testService("svc", everywhere))
	for range 2 {
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.10:80",
			"LoadBalancerIP 198.51.100.20:80", "NodePort port 30080/TCP")
		w.wantProblems()
		w.host = testHost()
		w.host.Addrs = append(w.host.Addrs, nodeinfo.Addr{Addr: ip("198.51.100.20"), Interface: "eth0"})
		w.replan()
	}
}

func TestHostAddressesAsExternalIPs(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowExternalIPs.Prefixes, opts.Proxy.AllowExternalIPs.Host = cidrs("198.51.100.0/24"), true
	w := newWorld(t, opts, apiServer("192.0.2.98"), testService("svc", func(s *source.Service) {
		s.ExternalIPs = ips(hostIP, "192.0.2.99", "192.0.2.98", "203.0.113.1", "198.51.100.10")
	}))
	w.host = testHost()
	w.host.Addrs = append(w.host.Addrs, nodeinfo.Addr{Addr: ip("192.0.2.98"), Interface: "eth0"})
	w.put(&source.Node{Name: hostName, Addresses: ips("192.0.2.99")})
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "ExternalIP 192.0.2.1:80", "ExternalIP 192.0.2.99:80",
		"ExternalIP 198.51.100.10:80")
	w.wantProblems("Service ns/svc: spec.externalIPs: 192.0.2.98 is the API server's address",
		`Service ns/svc: spec.externalIPs: 203.0.113.1 is not in a range of proxy.allow_external_ips; fix: proxy.allow_external_ips = ["198.51.100.0/24", "203.0.113.1/32", "host"]`)
}

func TestAPIServerAddressIsLearnedLater(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc", everywhere), testService("other", func(s *source.Service) {
		s.ClusterIPs = ips("10.96.0.11")
	}))
	other := w.find("other", plan.IPv4)
	for addr, want := range map[string][]string{
		"198.51.100.10": {"ClusterIP 10.96.0.10:80", "LoadBalancerIP 198.51.100.20:80", "NodePort port 30080/TCP"},
		"198.51.100.20": {"ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.10:80", "NodePort port 30080/TCP"},
	} {
		w.put(apiServer(addr))
		w.wantFrontends("svc", want...)
		if len(w.problems) != 1 {
			t.Errorf("%s: problems %v", addr, w.problems)
		}
		if w.find("other", plan.IPv4) != other {
			t.Errorf("%s: another Service changed", addr)
		}
	}
	w.remove(apiServer())
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.10:80", "LoadBalancerIP 198.51.100.20:80",
		"NodePort port 30080/TCP")
}

// A dummy device can have a ClusterIP that another program added. The ClusterIP counts as the host's own address if
// another interface also has it, or if the host uses it as the source of connections.
func TestClusterIPOnDummyInterface(t *testing.T) {
	const addr = "10.96.0.10"
	onDummy := nodeinfo.Addr{Addr: ip(addr), Interface: "dummy0", Dummy: true}
	for name, c := range map[string]struct {
		addrs  []nodeinfo.Addr
		node   *source.Node
		served bool
	}{
		"on a dummy":                   {[]nodeinfo.Addr{onDummy}, &source.Node{Name: hostName}, true},
		"on an interface":              {[]nodeinfo.Addr{{Addr: ip(addr), Interface: "eth1"}}, &source.Node{Name: hostName}, false},
		"on both":                      {[]nodeinfo.Addr{onDummy, {Addr: ip(addr), Interface: "eth1"}}, &source.Node{Name: hostName}, false},
		"on a dummy, and the Node's":   {[]nodeinfo.Addr{onDummy}, &source.Node{Name: hostName, Addresses: ips(addr)}, false},
		"on a dummy, and the source":   {[]nodeinfo.Addr{{Addr: ip(addr), Interface: "dummy0", Dummy: true, Primary: true}}, &source.Node{Name: hostName}, false},
		"the Node's, on no interface":  {nil, &source.Node{Name: hostName, Addresses: ips(addr)}, false},
		"neither here nor of the Node": {nil, &source.Node{Name: hostName}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testOptions(), testService("svc"), c.node)
			w.host = testHost()
			w.host.Addrs = append(w.host.Addrs, c.addrs...)
			w.replan()
			if got := w.find("svc", plan.IPv4) != nil; got != c.served || (len(w.problems) == 0) != c.served {
				t.Errorf("served %v, problems %v", got, w.problems)
			}
		})
	}
	// As an external IP, an address on a dummy device counts as an address of the host and requires "host" in
	// proxy.allow_external_ips.
	w := newWorld(t, testOptions(), testService("svc",
		func(s *source.Service) { s.ClusterIPs, s.ExternalIPs = ips("10.96.0.1"), ips(addr) }))
	w.host = testHost()
	w.host.Addrs = append(w.host.Addrs, onDummy)
	w.replan()
	w.wantFrontends("svc", "ClusterIP 10.96.0.1:80")
}

func TestDeniedEndpointsBehindNAT64(t *testing.T) {
	opts := testOptions()
	opts.Proxy.DenyEndpoints.Prefixes, opts.Proxy.DenyEndpoints.Host = cidrs("168.63.129.16/32"), true
	w := newWorld(t, opts, testService("svc", func(s *source.Service) { s.ClusterIPs = ips("fd00:96::1") }),
		testSlice("svc", ep("64:ff9b::168.63.129.16"), ep("64:ff9b::"+hostIP), ep("64:ff9b::203.0.113.1")))
	wantAddrs(t, "endpoints", w.find("svc", plan.IPv6).Pools[plan.ClusterPool], "64:ff9b::cb00:7101")
	if len(w.problems) != 2 {
		t.Errorf("problems %v", w.problems)
	}
}

func TestBroadcastAndGatewayAddressesAreRefused(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowLoadBalancers.Prefixes = cidrs("198.51.100.0/24", "192.0.2.0/24")
	w := newWorld(t, opts, testService("svc", func(s *source.Service) {
		s.ClusterIPs = ips("192.0.2.254")
		s.ExternalIPs = ips("192.0.2.255", "192.0.2.253")
		s.LoadBalancerIPs = ips("192.0.2.0", "203.0.113.1", "198.51.100.1")
	}))
	w.host = testHost()
	w.host.Broadcasts, w.host.Gateways = ips("192.0.2.0", "192.0.2.255"), ips("192.0.2.254", "fe80::1")
	w.replan()
	w.wantFrontends("svc", "ExternalIP 192.0.2.253:80", "LoadBalancerIP 198.51.100.1:80")
	w.wantProblems(
		"Service ns/svc: spec.clusterIPs: 192.0.2.254 is a default gateway of this host",
		"Service ns/svc: status.loadBalancer.ingress: 192.0.2.0 is the broadcast or network address of one of this host's networks",
		`Service ns/svc: status.loadBalancer.ingress: 203.0.113.1 is not in a range of proxy.allow_load_balancer_ips; fix: proxy.allow_load_balancer_ips = ["198.51.100.0/24", "192.0.2.0/24", "203.0.113.1/32"]`,
		"Service ns/svc: spec.externalIPs: 192.0.2.255 is the broadcast or network address of one of this host's networks")
}

// The planner leaves endpoints at denied addresses out of the plan, and the health check does not count these
// endpoints. An EndpointSlice can contain this host's addresses if the slice is from a manifest or the host is a Node
// of the cluster.
func TestDeniedEndpoints(t *testing.T) {
	const other = "10.1.0.1"
	for name, c := range map[string]struct {
		change func(*Options, *source.EndpointSlice)
		node   bool
		want   []string
	}{
		"by default":    {func(*Options, *source.EndpointSlice) {}, false, []string{other}},
		"of a manifest": {func(_ *Options, s *source.EndpointSlice) { s.Manifest = true }, false, []string{other, hostIP}},
		"on a Node":     {func(*Options, *source.EndpointSlice) {}, true, []string{other, hostIP}},
		"without host":  {func(o *Options, _ *source.EndpointSlice) { o.Proxy.DenyEndpoints.Host = false }, false, []string{other, hostIP}},
		"in a range":    {func(o *Options, _ *source.EndpointSlice) { o.Proxy.DenyEndpoints.Prefixes = cidrs("192.0.2.0/24") }, true, []string{other}},
		"in a range, manifest": {func(o *Options, s *source.EndpointSlice) {
			s.Manifest, o.Proxy.DenyEndpoints.Prefixes = true, cidrs("192.0.2.0/24")
		}, false, []string{other}},
		"broadcast, a manifest": {func(_ *Options, s *source.EndpointSlice) { s.Manifest, s.Endpoints[0].Addr = true, ip("192.0.2.255") }, false, []string{other}},
	} {
		t.Run(name, func(t *testing.T) {
			opts, slice := testOptions(), testSlice("svc", ep(hostIP, "here"), ep(other, "here"))
			opts.Proxy.DenyEndpoints.Host = true
			c.change(&opts, slice)
			w := newWorld(t, opts)
			w.host = testHost()
			w.host.Broadcasts = ips("192.0.2.255")
			if c.node {
				w.put(&source.Node{Name: hostName, Addresses: ips(hostIP)})
			}
			w.put(slice, testService("svc", func(s *source.Service) {
				s.ExternalLocal, s.HealthCheckNodePort = true,
					31000
			}))
			got := addrsOf(w.find("svc", plan.IPv4).Pools[plan.ClusterPool])
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if ready := w.plan.HealthChecks[0].LocalReady; ready != len(c.want) {
				t.Errorf("the health check counts %d endpoints, want %d", ready, len(c.want))
			}
			if len(w.problems) != 2-len(c.want) {
				t.Errorf("problems: %v", w.problems)
			}
		})
	}
}
