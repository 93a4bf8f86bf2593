package planner

import (
	"slices"
	"testing"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Only default/kubernetes can have the API server's address as a ClusterIP, even if a Service CIDR contains this
// address.
func TestAPIServerAddressIsNoClusterIP(t *testing.T) {
	w := newWorld(t, testOptions(), apiServer("10.96.0.1"), testService("thief", func(s *source.Service) {
		s.ClusterIPs = ips("10.96.0.1")
		s.Ports[0].NodePort = 30080
	}))
	w.wantFrontends("thief", "NodePort port 30080/TCP")
	w.wantProblems("Service ns/thief: spec.clusterIPs: 10.96.0.1 is the API server's address")

	own := testService("kubernetes", func(s *source.Service) {
		s.Namespace, s.ClusterIPs, s.ExternalIPs = "default", ips("10.96.0.1"), ips("10.96.0.1")
	})
	w.put(own)
	name := plan.ServicePortName{Namespace: "default", Name: "kubernetes", Protocol: plan.TCP}
	if sp := w.plan.Find(name, plan.IPv4); sp == nil || len(sp.Frontends) != 1 ||
		sp.Frontends[0].Kind != plan.ClusterIP {
		t.Errorf("the API server's own Service: %+v", sp)
	}
	w.wantProblems("Service default/kubernetes: spec.externalIPs: 10.96.0.1 is the API server's address",
		"Service ns/thief: spec.clusterIPs: 10.96.0.1 is the API server's address")
}

// Edgeway drops connections to unused addresses in a Service CIDR, so the planner ignores a range that contains the
// address of the API server or of a gateway.
func TestServiceCIDRContainingAPIServerIsLeftOut(t *testing.T) {
	opts := testOptions()
	opts.Proxy.ServiceCIDRs = cidrs("10.96.0.0/16", "203.0.113.0/25", "2001:db8:5::/64")
	half := &source.ServiceCIDR{Name: "half", CIDRs: cidrs("128.0.0.0/1", "fd00:96::/112")}
	w := newWorld(t, opts, half)
	wantCIDRs := func(want ...string) {
		t.Helper()
		if !slices.Equal(w.plan.Node.ServiceCIDRs, cidrs(want...)) {
			t.Errorf("Service CIDRs %v, want %v", w.plan.Node.ServiceCIDRs, want)
		}
	}
	wantCIDRs("10.96.0.0/16", "128.0.0.0/1", "2001:db8:5::/64", "fd00:96::/112")
	w.wantProblems()

	w.put(apiServer("203.0.113.7", "2001:db8:5::1"))
	wantCIDRs("10.96.0.0/16", "fd00:96::/112")
	const what = " of the API server or of its proxy: Edgeway does not drop connections to unused addresses of the range; " +
		"use a range from which only ClusterIPs are allocated, or use a server or proxy address outside the range in the kubeconfig"
	w.wantProblems("proxy.service_cidrs: 203.0.113.0/25 contains the address 203.0.113.7"+what,
		"proxy.service_cidrs: 2001:db8:5::/64 contains the address 2001:db8:5::1"+what,
		"ServiceCIDR half: spec.cidrs: 128.0.0.0/1 contains the address 203.0.113.7"+what)

	w.put(testService("svc", everywhere, func(s *source.Service) { s.ExternalIPs = nil }),
		testService("thief", func(s *source.Service) {
			s.ClusterIPs, s.ExternalIPs = ips("10.96.0.11"), ips("203.0.113.7")
		}))
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "LoadBalancerIP 198.51.100.20:80", "NodePort port 30080/TCP")
	if len(w.problems) != 4 || w.problems[3].Object.Name != "thief" {
		t.Errorf("problems %v", w.problems)
	}

	w.remove(apiServer(), testService("thief"))
	wantCIDRs("10.96.0.0/16", "128.0.0.0/1", "2001:db8:5::/64", "fd00:96::/112")
	w.wantProblems()

	w.host = &nodeinfo.Host{Addrs: testHost().Addrs, Gateways: ips("192.0.2.254")}
	w.replan()
	wantCIDRs("10.96.0.0/16", "203.0.113.0/25", "2001:db8:5::/64", "fd00:96::/112")
	w.wantProblems("ServiceCIDR half: spec.cidrs: 128.0.0.0/1 contains the address 192.0.2.254 of a default gateway of this host: " +
		"Edgeway does not drop connections to unused addresses of the range; use a range from which only ClusterIPs are allocated")
}

// NAT64 maps each address in 64:ff9b::/96 to the IPv4 address in its last 32 bits. The planner refuses the IPv6 address
// if the IPv4 address belongs to the API server or to a name server.
func TestNAT64FormOfRefusedAddressIsRefused(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowExternalIPs.Prefixes = cidrs("::/0")
	w := newWorld(t, opts, apiServer("203.0.113.9"), testService("thief", func(s *source.Service) {
		s.ClusterIPs = ips("10.96.0.7", "fd00:96::7")
		s.ExternalIPs = ips("64:ff9b::cb00:7109", "64:ff9b::cb00:7135", "64:ff9b::cb00:7136")
	}))
	w.host = testHost()
	w.host.NameServers = ips("203.0.113.53")
	w.replan()
	w.wantProblems("Service ns/thief: spec.externalIPs: 64:ff9b::cb00:7109 is the API server's address",
		"Service ns/thief: spec.externalIPs: 64:ff9b::cb00:7135 is a name server of this host")
}
