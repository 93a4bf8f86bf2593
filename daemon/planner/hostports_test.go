package planner

import (
	"testing"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// useHostAddr returns a function that sets a Service's load-balancer address to an address of the host, and the
// Service's ports to the given TCP ports.
func useHostAddr(ports ...uint16) func(*source.Service) {
	return func(s *source.Service) {
		s.LoadBalancerIPs, s.Ports = ips(hostIP), nil
		for _, port := range ports {
			s.Ports = append(s.Ports, source.ServicePort{Protocol: plan.TCP, Port: port})
		}
	}
}

// Only root can write manifests, so Services from manifests may have the host's addresses under any configuration.
func TestManifestServicesMayHaveHostAddresses(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowExternalIPs.Prefixes, opts.Proxy.AllowLoadBalancers.Prefixes = nil, nil
	svc := testService("svc", useHostAddr(80), func(s *source.Service) { s.ExternalIPs = ips("198.51.100.1", hostIP6) })
	w := newWorld(t, opts, svc)
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80")
	ours := *svc
	ours.Manifest = true
	w.put(&ours)
	w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "ExternalIP 198.51.100.1:80", "LoadBalancerIP 192.0.2.1:80")
	w.wantProblems()
}

// At the host's addresses, no Service can use a port that the daemon or an API server on this host listens on, even if
// the configuration allows the host's addresses or the Service is from a manifest.
func TestDaemonPortsAtHostAddressesAreRefused(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowLoadBalancers.Host, opts.Proxy.AllowExternalIPs.Host = true, true
	opts.OwnPorts = map[uint16]string{10256: "health.address"}
	for _, manifest := range []bool{false, true} {
		w := newWorld(t, opts, apiServer("127.0.0.1"), testService("svc", func(s *source.Service) {
			useHostAddr(10256)(s)
			s.Manifest = manifest
		}))
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:10256")
		w.wantProblems("Service ns/svc: status.loadBalancer.ingress: 192.0.2.1 is an address of this host, where health.address uses port 10256")
		w.put(testService("svc", useHostAddr(6443)))
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:6443")
		w.wantProblems("Service ns/svc: status.loadBalancer.ingress: 192.0.2.1 is an address of this host, where the API server uses port 6443")
		w.put(testService("svc", func(s *source.Service) { s.Ports[0].Port, s.ExternalIPs = 6443, ips(hostIP) }))
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:6443")

		// Services can use reserved ports at addresses that do not belong to the host, or with protocols other than
		// TCP.
		w.put(testService("svc", useHostAddr(10256),
			func(s *source.Service) { s.LoadBalancerIPs = ips("198.51.100.1") }))
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:10256", "LoadBalancerIP 198.51.100.1:10256")
		w.put(testService("svc", useHostAddr(10256), func(s *source.Service) { s.Ports[0].Protocol = plan.UDP }))
		w.wantProblems()

		// An API server on another host does not reserve a port of this host.
		w.put(apiServer("203.0.113.1"), testService("svc", useHostAddr(6443)))
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:6443", "LoadBalancerIP 192.0.2.1:6443")
		w.wantProblems()
	}
}

// While at least one Service uses a health check port, no Service can use that port at a host address.
func TestHealthCheckPortAtHostAddress(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowLoadBalancers.Host = true
	check := func(name string) *source.Service {
		return testService(name, func(s *source.Service) {
			s.ClusterIPs, s.ExternalLocal, s.HealthCheckNodePort = ips("10.96.0.1"+name), true, 31000
		})
	}
	served := []string{"ClusterIP 10.96.0.10:31000", "LoadBalancerIP 192.0.2.1:31000"}
	w := newWorld(t, opts, testService("svc", useHostAddr(31000)))
	w.wantFrontends("svc", served...)
	w.put(check("1"))
	w.wantFrontends("svc", served[0])
	w.wantProblems("Service ns/svc: status.loadBalancer.ingress: 192.0.2.1 is an address of this host, where port 31000 is a health check port")
	w.put(check("2"))
	w.remove(check("1"))
	w.wantFrontends("svc", served[0])
	w.remove(check("2"))
	w.wantFrontends("svc", served...)
	w.wantProblems()
}
