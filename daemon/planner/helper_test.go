package planner

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

const (
	hostName  = "here"
	hostIP    = "192.0.2.1"
	hostIP6   = "2001:db8::1"
	podCIDR   = "10.1.0.0/16"
	podIP     = "10.1.0.99"
	outsideIP = "203.0.113.77"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func ips(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, ip(s))
	}
	return out
}

func cidrs(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func testHost() *nodeinfo.Host {
	return &nodeinfo.Host{Addrs: []nodeinfo.Addr{
		{Addr: ip("127.0.0.1"), Interface: "lo"},
		{Addr: ip(hostIP), Interface: "eth0", Primary: true},
		{Addr: ip("::1"), Interface: "lo"},
		{Addr: ip(hostIP6), Interface: "eth0", Primary: true},
		{Addr: ip("fe80::1"), Interface: "eth0"},
	}}
}

func testOptions() Options {
	return Options{
		Node: config.Node{Name: hostName},
		Proxy: config.Proxy{
			LocalDetection: config.DetectClusterCIDR, ClusterCIDRs: cidrs(podCIDR, "fd00:1::/64"),
			NodePortAddresses:  config.NodePortAddresses{Primary: true},
			AllowExternalIPs:   config.HostRanges{Prefixes: cidrs("0.0.0.0/0", "::/0")},
			AllowLoadBalancers: config.HostRanges{Prefixes: cidrs("0.0.0.0/0", "::/0")},
		},
	}
}

// testService returns a Service with a ClusterIP and one port, "80/TCP".
func testService(name string, change ...func(*source.Service)) *source.Service {
	s := &source.Service{
		Namespace: "ns", Name: name, UID: "uid-" + name,
		Created:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		ClusterIPs: ips("10.96.0.10"),
		Ports:      []source.ServicePort{{Protocol: plan.TCP, Port: 80}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func everywhere(s *source.Service) {
	s.ExternalIPs = ips("198.51.100.10")
	s.LoadBalancerIPs = ips("198.51.100.20")
	s.Ports[0].NodePort = 30080
}

// ep returns an endpoint with an address and the given properties: "here" (on this host), "there" (on another host),
// "nowhere" (no node name), "stopping" (terminating and serving), "gone" (terminating and not serving), "unready",
// "zone=X" and "node=X" (hints).
func ep(addr string, words ...string) source.Endpoint {
	e := source.Endpoint{Addr: ip(addr), Ready: true, Serving: true, NodeName: "there"}
	var hints source.Hints
	for _, w := range words {
		switch w {
		case "here":
			e.NodeName = hostName
		case "there":
		case "nowhere":
			e.NodeName = ""
		case "stopping":
			e.Ready, e.Terminating = false, true
		case "gone":
			e.Ready, e.Serving, e.Terminating = false, false, true
		case "unready":
			e.Ready, e.Serving = false, false
		default:
			if zone, ok := cut(w, "zone="); ok {
				hints.ForZones = append(hints.ForZones, zone)
			} else if node, ok := cut(w, "node="); ok {
				hints.ForNodes = append(hints.ForNodes, node)
			} else {
				panic(w)
			}
		}
	}
	if len(hints.ForNodes) > 0 || len(hints.ForZones) > 0 {
		e.Hints = &hints
	}
	return e
}

func cut(s, prefix string) (string, bool) {
	if len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):], true
	}
	return "", false
}

func testSlice(service string, endpoints ...source.Endpoint) *source.EndpointSlice {
	s := &source.EndpointSlice{
		Namespace: "ns", Name: service + "-1", Service: service, Family: plan.IPv4,
		Ports: []source.SlicePort{{Protocol: plan.TCP, Port: 8080}}, Endpoints: endpoints,
	}
	if len(endpoints) > 0 {
		s.Family = plan.FamilyOf(endpoints[0].Addr)
	}
	return s
}

type world struct {
	*testing.T
	opts Options
	host *nodeinfo.Host
	tr   *tracker.Tracker
	sink source.Sink
	plan *plan.Plan
	*Planner
	problems []fault.Fault
}

func newWorld(t *testing.T, opts Options, objects ...source.Object) *world {
	w := &world{T: t, opts: opts, host: testHost(), tr: tracker.New(tracker.Layer{Name: "kube"}), Planner: New(opts)}
	w.sink = w.tr.Sink("kube")
	w.sink.Synced()
	w.put(objects...)
	return w
}

func (w *world) put(objects ...source.Object) {
	for _, o := range objects {
		w.sink.Upsert(o)
	}
	w.replan()
}

func (w *world) remove(objects ...source.Object) {
	for _, o := range objects {
		w.sink.Delete(o.Key())
	}
	w.replan()
}

func (w *world) replan() {
	w.Helper()
	snap, ok := w.tr.Snapshot()
	if !ok {
		w.Fatal("the gate is closed")
	}
	w.plan, w.problems = w.Plan(snap, w.host, w.plan)
}

func (w *world) find(service string, family plan.Family) *plan.ServicePort {
	return w.plan.Find(plan.ServicePortName{Namespace: "ns", Name: service, Protocol: plan.TCP}, family)
}

// frontendsOf formats the frontends of a Service's IPv4 port, such as "ClusterIP 10.96.0.10:80" and "NodePort port
// 30080/TCP".
func (w *world) frontendsOf(service string) []string {
	out := []string{}
	if sp := w.find(service, plan.IPv4); sp != nil {
		for _, f := range sp.Frontends {
			if f.Kind == plan.NodePort {
				out = append(out, "NodePort "+exclusivePort{port: f.Port, protocol: plan.TCP}.String())
			} else {
				out = append(out, f.Kind.String()+" "+netip.AddrPortFrom(f.Addr, f.Port).String())
			}
		}
	}
	return out
}

func (w *world) wantFrontends(service string, want ...string) {
	w.Helper()
	if got := w.frontendsOf(service); !slices.Equal(got, append([]string{}, want...)) {
		w.Errorf("frontends of %s: got %q, want %q", service, got, want)
	}
}

func (w *world) wantProblems(want ...string) {
	w.Helper()
	got := []string{}
	for _, p := range w.problems {
		text := p.String()
		if p.Fix != "" {
			text += "; fix: " + p.Fix
		}
		got = append(got, text)
	}
	if !slices.Equal(got, append([]string{}, want...)) {
		w.Errorf("problems: got %q, want %q", got, want)
	}
}

func addrsOf(pool []plan.Endpoint) []string {
	out := []string{}
	for _, e := range pool {
		out = append(out, e.Addr.Addr().String())
	}
	return out
}

func wantAddrs(t *testing.T, what string, pool []plan.Endpoint, want ...string) {
	t.Helper()
	if got := addrsOf(pool); !slices.Equal(got, append([]string{}, want...)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
