package planner

import (
	"testing"

	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

func onPort(port uint16) func(*source.Service) {
	return func(s *source.Service) { s.Ports[0].NodePort = port }
}

func healthPort(port uint16) func(*source.Service) {
	return func(s *source.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, port }
}

// If a Service from the API server requests a port outside proxy.nodeport_range, the planner reports a problem and
// suggests a fix. Only root can write manifests, so Services from manifests can use any port.
func TestNodePortRange(t *testing.T) {
	opts := testOptions()
	opts.Proxy.NodePortRange = config.PortRange{First: 30000, Last: 32767}
	w := newWorld(t, opts, testService("low", onPort(22), healthPort(80)),
		testService("high", onPort(30000), healthPort(32767),
			func(s *source.Service) { s.ClusterIPs = ips("10.96.0.11") }))
	w.wantFrontends("low", "ClusterIP 10.96.0.10:80")
	w.wantFrontends("high", "ClusterIP 10.96.0.11:80", "NodePort port 30000/TCP")
	const setting = "proxy.nodeport_range: Edgeway does not serve NodePorts or health check ports outside 30000-32767: "
	w.wantProblems(setting+`22, 80; fix: proxy.nodeport_range = "22-32767"`,
		"Service ns/low: spec.ports[0].nodePort: port 22 is not in proxy.nodeport_range (30000-32767)",
		"Service ns/low: spec.healthCheckNodePort: port 80 is not in proxy.nodeport_range (30000-32767)")
	if id := w.problems[0].ID; id != NodePortRangeID {
		t.Errorf("the host's problem has the ID %q", id)
	}
	w.put(testService("low", onPort(40000)))
	w.wantProblems(setting+`40000; fix: proxy.nodeport_range = "30000-40000"`,
		"Service ns/low: spec.ports[0].nodePort: port 40000 is not in proxy.nodeport_range (30000-32767)")
	w.put(testService("low", onPort(22), healthPort(80), func(s *source.Service) { s.Manifest = true }))
	w.wantProblems()
	w.wantFrontends("low", "ClusterIP 10.96.0.10:80", "NodePort port 22/TCP")
	w.put(testService("low", onPort(22)))
	w.remove(testService("low"))
	w.wantProblems()

	opts.Proxy.NodePortAddresses = config.NodePortAddresses{} // a host that accepts no NodePorts has no problem
	w.Planner = New(opts)
	w.put(testService("low", onPort(22)))
	w.wantProblems("Service ns/low: spec.ports[0].nodePort: port 22 is not in proxy.nodeport_range (30000-32767)")
	opts.Proxy.NodePortRange = config.PortRange{}
	w.Planner = New(opts)
	w.replan()
	w.wantProblems()
}

// If the daemon or an API server on this host listens on a TCP port, no Service can use the port as a NodePort or
// health check port, even if proxy.nodeport_range contains the port or the Service is from a manifest. A Service can
// still use the UDP port with the same number.
func TestDaemonPortsAreNoNodePorts(t *testing.T) {
	opts := testOptions()
	opts.OwnPorts = map[uint16]string{10256: "health.address"}
	for _, manifest := range []bool{false, true} {
		ours := func(s *source.Service) { s.Manifest = manifest }
		w := newWorld(t, opts, apiServer("127.0.0.1"), testService("svc", onPort(10256), healthPort(6443), ours))
		w.wantFrontends("svc", "ClusterIP 10.96.0.10:80")
		w.wantProblems("Service ns/svc: spec.ports[0].nodePort: health.address uses port 10256 on this host",
			"Service ns/svc: spec.healthCheckNodePort: the API server uses port 6443 on this host")
		w.put(testService("svc", onPort(6443), healthPort(10256), ours))
		w.wantProblems("Service ns/svc: spec.ports[0].nodePort: the API server uses port 6443 on this host",
			"Service ns/svc: spec.healthCheckNodePort: health.address uses port 10256 on this host")
		w.put(apiServer("203.0.113.1"), testService("svc", onPort(6443), ours))
		w.wantProblems()
		w.put(testService("svc", onPort(10256), ours, func(s *source.Service) { s.Ports[0].Protocol = plan.UDP }))
		w.wantProblems()
	}
}
