package planner

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

func numbered(base string, i int) netip.Addr {
	a := ip(base).As4()
	return netip.AddrFrom4([4]byte{a[0], a[1] + byte(i>>16), byte(i >> 8), byte(i)})
}

// wide gives a Service n ports, p0 and so on.
func wide(n int) func(*source.Service) {
	return func(s *source.Service) {
		s.Ports = nil
		for i := range n {
			s.Ports = append(s.Ports, source.ServicePort{Name: fmt.Sprint("p", i), Protocol: plan.TCP, Port: uint16(i + 1)})
		}
	}
}

// wideSlice has n ports and the endpoints that are numbered from first on.
func wideSlice(service string, n, first, endpoints int) *source.EndpointSlice {
	s := &source.EndpointSlice{Namespace: "ns", Name: fmt.Sprint(service, "-", first), Service: service, Family: plan.IPv4}
	for i := range n {
		s.Ports = append(s.Ports, source.SlicePort{Name: fmt.Sprint("p", i), Protocol: plan.TCP, Port: uint16(i + 1)})
	}
	for i := range endpoints {
		e := ep("10.2.0.0")
		e.Addr = numbered("10.2.0.0", first+i)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func addresses(base string, n int) (out []netip.Addr) {
	for i := range n {
		out = append(out, numbered(base, i))
	}
	return out
}

// A Service that asks for more endpoints times ports than the bound has fewer endpoints at each port, and serves. One
// below the bound has all.
func TestBoundOfEndpoints(t *testing.T) {
	opts := testOptions()
	opts.Bounds = Bounds{Endpoints: 1000}
	w := newWorld(t, opts, testService("big", wide(20)), wideSlice("big", 20, 0, 30), wideSlice("big", 20, 30, 20))
	w.wantProblems()
	at := func(port string) []plan.Endpoint {
		sp := w.plan.Find(plan.ServicePortName{Namespace: "ns", Name: "big", Port: port, Protocol: plan.TCP}, plan.IPv4)
		return sp.Pools[plan.ClusterPool]
	}
	if got := len(at("p19")); got != 50 {
		t.Errorf("at the bound: %d endpoints", got)
	}
	w.put(wideSlice("big", 20, 50, 1))
	w.wantProblems("Service ns/big: 1,020 endpoints x ports, more than 1,000 (proxy.max_service_endpoints): 50 of each port are served, the others are left out")
	for _, port := range []string{"p0", "p19"} {
		if got := len(at(port)); got != 50 {
			t.Errorf("beyond the bound: %d endpoints of %s", got, port)
		}
	}
	w.remove(wideSlice("big", 0, 50, 0))
	w.wantProblems()
}

// A Service with more addresses times ports than the bound is left out, and claims nothing.
func TestBoundOfFrontends(t *testing.T) {
	opts := testOptions()
	opts.Bounds = Bounds{Frontends: 44}
	w := newWorld(t, opts, testService("old", wide(4), func(s *source.Service) {
		s.ExternalIPs = addresses("198.51.0.0", 10)
		s.Ports[0].NodePort = 30000
		s.ExternalLocal, s.HealthCheckNodePort = true, 31000
	}), testService("young", func(s *source.Service) {
		s.Created, s.ClusterIPs, s.ExternalIPs = s.Created.Add(time.Hour), ips("10.96.0.11"), addresses("198.51.0.0", 1)
		s.Ports[0].Port = 1
	}))
	w.wantProblems("Service ns/old: 45 addresses x ports, more than 44 (proxy.max_service_frontends): the Service is left out")
	w.wantFrontends("young", "ClusterIP 10.96.0.11:1", "ExternalIP 198.51.0.0:1")
	if len(w.plan.Services) != 1 || len(w.plan.HealthChecks) != 0 {
		t.Errorf("%d ServicePorts, %d health checks", len(w.plan.Services), len(w.plan.HealthChecks))
	}
	w.opts.Bounds.Frontends = 45
	w.Planner = New(w.opts)
	w.replan()
	w.wantProblems("Service ns/old: spec.externalIPs: 198.51.0.0:1/TCP belongs to Service ns/young") // who has it keeps it
}

// Source ranges that are too many leave the Service out: its addresses without them would be open to all.
func TestBoundOfSourceRanges(t *testing.T) {
	opts := testOptions()
	opts.Bounds = Bounds{SourceRanges: 12}
	service := func(ranges int) *source.Service {
		return testService("svc", wide(2), func(s *source.Service) {
			s.LoadBalancerIPs, s.ExternalIPs = ips("198.51.100.1", "198.51.100.2"), ips("198.51.100.1", "198.51.100.3")
			for i := range ranges {
				s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(numbered("203.0.0.0", i), 32))
			}
		})
	}
	w := newWorld(t, opts, service(3))
	w.wantProblems()
	w.put(service(4))
	w.wantProblems("Service ns/svc: 16 source ranges x load-balancer addresses x ports, more than 12 (proxy.max_service_source_ranges): the Service is left out")
	if len(w.plan.Services) > 0 {
		t.Errorf("%d ServicePorts are served", len(w.plan.Services))
	}
}

// A Service cannot fill the list of problems.
func TestFaultsOfAServiceAreBounded(t *testing.T) {
	opts := testOptions()
	opts.AllowExternalIPs = nil
	w := newWorld(t, opts, testService("svc", func(s *source.Service) { s.ExternalIPs = addresses("198.51.0.0", 1000) }))
	if last := w.problems[len(w.problems)-1].String(); len(w.problems) != maxFaults+1 || last != "Service ns/svc: 980 more faults" {
		t.Errorf("%d problems, the last is %q", len(w.problems), last)
	}
}

// cost gives the processor time and the memory that planning takes.
func cost(snap *tracker.Snapshot, opts Options) (took time.Duration, allocated uint64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took = time.Hour
	for range 3 {
		var before, after unix.Rusage
		var memory, then runtime.MemStats
		runtime.ReadMemStats(&memory)
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &before)
		New(opts).Plan(snap, testHost(), nil)
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &after)
		runtime.ReadMemStats(&then)
		took = min(took, time.Duration(after.Utime.Nano()-before.Utime.Nano()+after.Stime.Nano()-before.Stime.Nano()))
		allocated = then.TotalAlloc - memory.TotalAlloc
	}
	return took, allocated
}

func snapshotOf(objects ...source.Object) *tracker.Snapshot {
	tr := tracker.New(tracker.Layer{Name: "kube"})
	sink := tr.Sink("kube")
	for _, o := range objects {
		sink.Upsert(o)
	}
	sink.Synced()
	snap, _ := tr.Snapshot()
	return snap
}

// widest is a Service with n ports and 5 slices that have all of them.
func widest(n int) []source.Object {
	objects := []source.Object{testService("wide", wide(n))}
	for i := range 5 {
		objects = append(objects, wideSlice("wide", n, i, 1))
	}
	return objects
}

// Ten times the ports take ten times the time, more or less, not a hundred times.
func TestPlanningIsLinearInPorts(t *testing.T) {
	few, _ := cost(snapshotOf(widest(500)...), testOptions())
	many, _ := cost(snapshotOf(widest(5000)...), testOptions())
	if many > 40*max(few, time.Millisecond) {
		t.Errorf("500 ports take %v, 5,000 take %v", few, many)
	}
}

// What exceeds a bound is not built first: 2,000 ports with 10,000 endpoints, or 2,000 addresses, would take gigabytes.
func TestBoundsHoldBeforeAnythingIsBuilt(t *testing.T) {
	opts := testOptions()
	opts.Bounds = Bounds{Endpoints: 50000, Frontends: 20000, SourceRanges: 20000}
	endpoints := []source.Object{testService("svc", wide(2000))}
	for i := range 10 {
		endpoints = append(endpoints, wideSlice("svc", 2000, 1000*i, 1000))
	}
	for name, objects := range map[string][]source.Object{
		"endpoints": endpoints,
		"frontends": {testService("svc", wide(2000), func(s *source.Service) { s.ExternalIPs = addresses("198.51.0.0", 2000) })},
		"source ranges": {testService("svc", wide(2000), func(s *source.Service) {
			s.LoadBalancerIPs = addresses("198.51.0.0", 2)
			for _, a := range addresses("203.0.0.0", 2000) {
				s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(a, 32))
			}
		})},
	} {
		took, allocated := cost(snapshotOf(objects...), opts)
		t.Logf("%s: %v, %d MB", name, took, allocated>>20)
		if allocated > 40<<20 {
			t.Errorf("%s: %d MB", name, allocated>>20)
		}
		_, problems := New(opts).Plan(snapshotOf(objects...), testHost(), nil)
		if len(problems) != 1 || !strings.Contains(problems[0].Message, "more than") {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// One Service, all of its ports in each of 5 slices.
func BenchmarkPlanManyPorts(b *testing.B) {
	for _, n := range []int{1000, 5000, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap := snapshotOf(widest(n)...)
			b.ReportAllocs()
			for b.Loop() {
				New(testOptions()).Plan(snap, testHost(), nil)
			}
		})
	}
}
