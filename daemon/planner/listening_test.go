package planner

import (
	"net/netip"
	"slices"
	"testing"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// listen makes programs listen, and nobody else: "0.0.0.0:22" over TCP, "udp 0.0.0.0:53".
func (w *world) listen(at ...string) {
	w.Helper()
	host := *w.host
	host.Listeners = nil
	for _, a := range at {
		l := nodeinfo.Listener{Protocol: plan.TCP}
		if rest, ok := cut(a, "udp "); ok {
			l.Protocol, a = plan.UDP, rest
		}
		l.Addr = netip.MustParseAddrPort(a)
		host.Listeners = append(host.Listeners, l)
	}
	w.host = &host
	w.replan()
}

func onPort(port uint16) func(*source.Service) {
	return func(s *source.Service) { s.Ports[0].NodePort = port }
}

// A NodePort that a program listens on is not taken, and is served when the program has ended. Listeners that a NodePort
// does not disturb do not matter.
func TestNodePortOfAProgram(t *testing.T) {
	for at, taken := range map[string]bool{
		"0.0.0.0:22":           true,
		"[::]:22":              true,
		hostIP + ":22":         true,
		"[" + hostIP6 + "]:22": true,
		"192.0.2.99:22":        false, // no NodePorts there
		"0.0.0.0:23":           false,
		"udp 0.0.0.0:22":       false,
	} {
		w := newWorld(t, testOptions())
		w.listen(at)
		w.put(testService("svc", onPort(22)), testService("other", func(s *source.Service) { s.ClusterIPs = ips("10.96.0.11") }))
		other := w.find("other", plan.IPv4)
		if !taken {
			w.wantProblems()
			w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "NodePort port 22/TCP")
			continue
		}
		if len(w.problems) != 1 {
			t.Errorf("%s: problems %v", at, w.problems)
		}
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:80")
		w.listen()
		w.wantProblems()
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "NodePort port 22/TCP")
		if w.find("other", plan.IPv4) != other {
			t.Errorf("%s: another Service changed", at)
		}
	}
}

// Who listens matters where a Service may want another port of the host, and nowhere else: to find it out costs more than to plan.
func TestTakesPorts(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc", onPort(30001)), testSlice("svc", source.Endpoint{Addr: ip("10.244.1.1")}))
	for _, c := range []struct {
		what  string
		obj   source.Object
		takes bool
	}{
		{"other endpoints", testSlice("svc", source.Endpoint{Addr: ip("10.244.1.2")}), false},
		{"a Service without a NodePort", testService("other", func(s *source.Service) { s.ClusterIPs = ips("10.96.0.11") }), false},
		{"another NodePort", testService("svc", onPort(30002)), true},
		{"no NodePort", testService("svc"), false},
		{"a new NodePort", testService("svc", onPort(30003)), true},
	} {
		w.sink.Upsert(c.obj)
		snap, _ := w.tr.Snapshot()
		if got := w.TakesPorts(snap); got != c.takes {
			t.Errorf("%s: %v, want %v", c.what, got, c.takes)
		}
		w.replan()
	}
	w.Planner = New(testOptions())
	if snap, _ := w.tr.Snapshot(); !w.TakesPorts(snap) {
		t.Error("the first plan takes no ports")
	}
}

// Who has a port keeps it when a program begins to listen on it, also over a restart; with the Service it goes to the
// program.
func TestServiceKeepsItsNodePort(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc", onPort(30080)))
	w.listen("0.0.0.0:30080")
	w.wantProblems()
	w.put(testService("svc", onPort(30080), func(s *source.Service) { s.ExternalLocal = true }))
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "NodePort port 30080/TCP")

	held := w.Contested()
	if len(held) != 1 || held[0].Name != "svc" || held[0].Port != 30080 {
		t.Errorf("contested: %v", held)
	}
	w.opts.Held = func() []source.Holding { return held }
	w.Planner, w.plan = New(w.opts), nil
	w.replan()
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "NodePort port 30080/TCP")

	w.remove(testService("svc"))
	w.put(testService("svc", onPort(30080)))
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80")
	if held := w.Contested(); len(held) != 0 {
		t.Errorf("what a program has is saved: %v", held)
	}
}

// A privileged port goes to a program that begins to listen on it, whatever else changes, and over a restart: sshd may start
// after the daemon.
func TestPrivilegedPortGoesToTheProgram(t *testing.T) {
	const nodePort = "NodePort port 22/TCP"
	w := newWorld(t, testOptions(), testService("svc", onPort(22)))
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", nodePort)
	w.listen("0.0.0.0:22")
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80")
	if len(w.problems) != 1 || len(w.Contested()) != 0 {
		t.Errorf("problems %v, saved %v", w.problems, w.Contested())
	}
	w.listen()
	w.wantProblems()
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", nodePort)

	host := *w.host // both at once
	host.Listeners = []nodeinfo.Listener{{Protocol: plan.TCP, Addr: netip.MustParseAddrPort("[::]:22")}}
	w.host = &host
	w.put(testService("svc", onPort(22), func(s *source.Service) { s.ExternalLocal = true }))
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80")

	w.opts.Held = func() []source.Holding {
		return []source.Holding{{Protocol: plan.TCP, Port: 22, Namespace: "ns", Name: "svc"}}
	}
	w.Planner, w.plan = New(w.opts), nil
	w.replan()
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80")
}

// The fault names who listens. A health check port is a port of the host as well.
func TestFaultOfAPortInUse(t *testing.T) {
	w := newWorld(t, testOptions(), &source.Node{Name: hostName})
	w.listen("0.0.0.0:22", hostIP+":31000")
	w.put(testService("svc", onPort(22), func(s *source.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, 31000 }))
	w.wantProblems(
		"Service ns/svc: spec.ports[0].nodePort: port 22/TCP is in use on this host by another program (tcp 0.0.0.0:22): it is served when that no longer listens",
		"Service ns/svc: spec.healthCheckNodePort: port 31000/TCP is in use on this host by another program (tcp 192.0.2.1:31000): it is served when that no longer listens")
	if len(w.plan.HealthChecks) != 0 {
		t.Error("the health check is served")
	}
}

// A port that the options refuse is nobody's.
func TestPortRefusal(t *testing.T) {
	opts := testOptions()
	opts.PortRefusal = func(_ plan.Protocol, port uint16) string {
		if port < 30000 {
			return "too low"
		}
		return ""
	}
	w := newWorld(t, opts, testService("low", onPort(22), func(s *source.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, 23 }),
		testService("high", onPort(30000), func(s *source.Service) { s.ClusterIPs = ips("10.96.0.11") }))
	w.wantFrontends("low", "ClusterIP 10.96.0.10:80")
	w.wantFrontends("high", "ClusterIP 10.96.0.11:80", "NodePort port 30000/TCP")
	w.wantProblems("Service ns/low: spec.ports[0].nodePort: too low", "Service ns/low: spec.healthCheckNodePort: too low")
}

// Nobody gets the broadcast addresses of the host's networks, nor its gateways; load-balancer addresses have ranges of
// their own.
func TestAddressesOfTheHostsNetworks(t *testing.T) {
	opts := testOptions()
	opts.AllowLoadBalancers = cidrs("198.51.100.0/24", "192.0.2.0/24")
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
		"Service ns/svc: status.loadBalancer.ingress: 192.0.2.0 is the broadcast or network address of a network of this host",
		"Service ns/svc: status.loadBalancer.ingress: 203.0.113.1 is not in a range of proxy.allow_load_balancer_ips",
		"Service ns/svc: spec.externalIPs: 192.0.2.255 is the broadcast or network address of a network of this host")
}

// Endpoints that only this host should reach are left out, in the health check too. What a manifest says of this host is
// right, and so is what the cluster says of a host that is one of its Nodes.
func TestDeniedEndpoints(t *testing.T) {
	const other = "10.1.0.1"
	for name, c := range map[string]struct {
		change func(*Options, *source.EndpointSlice)
		node   bool
		want   []string
	}{
		"by default":            {func(*Options, *source.EndpointSlice) {}, false, []string{other}},
		"of a manifest":         {func(_ *Options, s *source.EndpointSlice) { s.Manifest = true }, false, []string{other, hostIP}},
		"on a Node":             {func(*Options, *source.EndpointSlice) {}, true, []string{other, hostIP}},
		"without host":          {func(o *Options, _ *source.EndpointSlice) { o.DenyHostEndpoints = false }, false, []string{other, hostIP}},
		"in a range":            {func(o *Options, _ *source.EndpointSlice) { o.DenyEndpoints = cidrs("192.0.2.0/24") }, true, []string{other}},
		"in a range, manifest":  {func(o *Options, s *source.EndpointSlice) { s.Manifest, o.DenyEndpoints = true, cidrs("192.0.2.0/24") }, false, []string{other}},
		"broadcast, a manifest": {func(_ *Options, s *source.EndpointSlice) { s.Manifest, s.Endpoints[0].Addr = true, ip("192.0.2.255") }, false, []string{other}},
	} {
		t.Run(name, func(t *testing.T) {
			opts, slice := testOptions(), testSlice("svc", ep(hostIP, "here"), ep(other, "here"))
			opts.DenyHostEndpoints = true
			c.change(&opts, slice)
			w := newWorld(t, opts)
			w.host = testHost()
			w.host.Broadcasts = ips("192.0.2.255")
			if c.node {
				w.put(&source.Node{Name: hostName, Addresses: ips(hostIP)})
			}
			w.put(slice, testService("svc", func(s *source.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, 31000 }))
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
