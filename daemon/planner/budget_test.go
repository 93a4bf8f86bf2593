package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
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

// withPorts returns a function that sets a Service's ports to n ports named p0, p1 and so on.
func withPorts(n int) func(*source.Service) {
	return func(s *source.Service) {
		s.Ports = nil
		for i := range n {
			s.Ports = append(s.Ports, source.ServicePort{
				Name: fmt.Sprint("p", i), Protocol: plan.TCP,
				Port: uint16(i + 1),
			})
		}
	}
}

// wideSlice returns an EndpointSlice with n ports. The parameter first is the first endpoint's offset from the address
// 10.2.0.0.
func wideSlice(service string, n, first, endpoints int) *source.EndpointSlice {
	s := &source.EndpointSlice{
		Namespace: "ns", Name: fmt.Sprint(service, "-", first), Service: service,
		Family: plan.IPv4,
	}
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

// The planner leaves out and reports the largest Services until the others fit within the limit. A Service may be large
// because of its endpoints, addresses or source ranges. The planner ignores an excluded Service's requests for ports.
// When an excluded Service fits within the limit again, the planner serves it again.
func TestBudget(t *testing.T) {
	opts := testOptions()
	opts.Budget = Budget{20e6, 400e3, 100e3, 100e3}
	ranges := func(n int) func(*source.Service) {
		return func(s *source.Service) {
			s.LoadBalancerIPs = ips("198.51.100.1", "198.51.100.2")
			for i := range n {
				s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(numbered("203.0.0.0", i), 32))
			}
		}
	}
	at := func(i int) func(*source.Service) {
		return func(s *source.Service) { s.ClusterIPs = []netip.Addr{numbered("10.96.1.0", i)} }
	}
	for name, big := range map[string][]source.Object{
		"endpoints":     {testService("big", at(1), withPorts(20)), wideSlice("big", 20, 0, 5)}, // 20 x (4+1+5) = 200
		"addresses":     {testService("big", at(1), withPorts(20), func(s *source.Service) { s.ExternalIPs = addresses("198.51.0.0", 5) })},
		"source ranges": {testService("big", at(1), withPorts(20), ranges(2))}, // 20 x (4 + 1 + 2 x 3) = 220
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, opts, append(big, testService("small", at(2), everywhere),
				testSlice("small", ep("10.1.0.1")))...)
			const fault = "MemoryMax=: Edgeway does not serve Services that need too much memory: ns/big"
			const why = "of memory, but the memory limit allows only 20.0 MB for all Services: Edgeway does not serve the Service"
			if len(w.problems) != 2 || w.problems[0].ID != BudgetID || w.problems[0].String() != fault ||
				!strings.HasPrefix(w.problems[0].Fix, "systemctl edit") ||
				!strings.HasSuffix(w.problems[1].String(), why) {
				t.Fatalf("problems %v", w.problems)
			}
			w.wantFrontends("small", "ClusterIP 10.96.0.2:80", "ExternalIP 198.51.100.10:80",
				"LoadBalancerIP 198.51.100.20:80", "NodePort port 30080/TCP")
			if w.find("small", plan.IPv4) == nil || len(w.plan.Services) != 1 {
				t.Errorf("%d ServicePorts", len(w.plan.Services))
			}
			// The Service "other" requests an address of the Service "big".
			w.put(testService("other", at(1), func(s *source.Service) { s.Created = s.Created.Add(time.Hour) }))
			w.wantFrontends("other", fmt.Sprintf("ClusterIP %s:80", numbered("10.96.1.0", 1)))
			w.remove(testService("small"), testService("other"))
			w.put(testService("big", at(1), withPorts(10)))
			w.wantProblems()
			if len(w.plan.Services) != 10 {
				t.Errorf("a Service that is smaller now has %d ServicePorts", len(w.plan.Services))
			}
		})
	}
}

// Among Services of the same size, the planner leaves out the youngest, regardless of their names and the order in
// which it receives them.
func TestBudgetPrefersOldestOfEqualServices(t *testing.T) {
	opts := testOptions()
	opts.Budget = Budget{20e3, 4e3, 1e3, 1e3}
	service := func(name string, age int) *source.Service {
		return testService(name, func(s *source.Service) {
			s.ClusterIPs, s.Created = []netip.Addr{numbered("10.96.0.0", age)},
				s.Created.Add(-time.Duration(age)*time.Hour)
		})
	}
	slice := func(name string) *source.EndpointSlice {
		s := wideSlice(name, 1, 0, 10)
		s.Ports[0].Name = ""
		return s
	}
	w := newWorld(t, opts, service("b", 2), slice("b"))
	served := w.find("b", plan.IPv4)
	w.put(service("a", 1), slice("a"), service("c", 0), slice("c"))
	if w.find("b", plan.IPv4) != served || len(w.plan.Services) != 1 {
		t.Errorf("%d ServicePorts, the oldest is served: %t", len(w.plan.Services), w.find("b", plan.IPv4) == served)
	}
}

// If a Service grows and displaces another Service, the displaced Service's addresses become available to other
// Services. If the growing Service becomes the largest, the planner leaves it out. Of two Services of about the same
// size, the planner always leaves out the same one.
func TestBudgetAfterServiceGrows(t *testing.T) {
	opts := testOptions()
	opts.Budget = Budget{100e3, 4e3, 1e3, 1e3}
	service := func(name string, addr string) *source.Service {
		return testService(name, func(s *source.Service) { s.ClusterIPs = ips(addr) })
	}
	w := newWorld(t, opts, service("a", "10.96.0.1"), service("b", "10.96.0.2"), wideSlice("a", 0, 0, 0),
		wideSlice("b", 0, 0, 0))
	slices := func(name string, n int) *source.EndpointSlice {
		s := wideSlice(name, 1, 0, n)
		s.Ports[0].Name = ""
		return s
	}
	for _, c := range []struct {
		a, b int
		out  string
	}{
		{40, 40, ""},
		{50, 40, ""},
		{51, 44, "b"},
		{51, 52, "b"},
		{45, 45, ""},
		{70, 26, "a"},
		{26, 70, "b"},
		{90, 0, ""},
		{91, 0, "a"},
		{97, 97, "a b"},
	} {
		w.put(slices("a", c.a), slices("b", c.b))
		var out []string
		for _, name := range []string{"a", "b"} {
			if len(w.frontendsOf(name)) == 0 {
				out = append(out, name)
			}
		}
		if got := strings.Join(out, " "); got != c.out {
			t.Errorf("%d and %d endpoints: left out is %q, want %q (%v)", c.a, c.b, got, c.out, w.problems)
		}
	}
}

func TestServiceFaultsAreBounded(t *testing.T) {
	opts := testOptions()
	opts.Proxy.AllowExternalIPs.Prefixes = nil
	w := newWorld(t, opts, testService("svc",
		func(s *source.Service) { s.ExternalIPs = addresses("198.51.0.0", 1000) }))
	if last := w.problems[len(w.problems)-1].String(); len(w.problems) != 21 ||
		last != "Service ns/svc: 980 more faults" {
		t.Errorf("%d problems, the last is %q", len(w.problems), last)
	}
}

// cost measures the CPU time and the memory of one planning run.
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

// manyPortService returns a Service with n ports, and 5 EndpointSlices that each contain all ports.
func manyPortService(n int) []source.Object {
	objects := []source.Object{testService("wide", withPorts(n))}
	for i := range 5 {
		objects = append(objects, wideSlice("wide", n, i, 1))
	}
	return objects
}

func TestPlanningIsLinearInPorts(t *testing.T) {
	few, _ := cost(snapshotOf(manyPortService(500)...), testOptions())
	many, _ := cost(snapshotOf(manyPortService(5000)...), testOptions())
	if many > 40*max(few, time.Millisecond) {
		t.Errorf("500 ports take %v, 5,000 take %v", few, many)
	}
}

// The planner creates no ServicePorts for a Service that exceeds the budget. With 2,000 ports and 10,000 endpoints or
// 2,000 addresses, the ServicePorts would occupy gigabytes of memory.
func TestBudgetIsEnforcedBeforePlanning(t *testing.T) {
	opts := testOptions()
	opts.Budget = Budget{0, 1000, 1000, 1000}
	endpoints := []source.Object{testService("svc", withPorts(2000))}
	for i := range 10 {
		endpoints = append(endpoints, wideSlice("svc", 2000, 1000*i, 1000))
	}
	for name, objects := range map[string][]source.Object{
		"endpoints": endpoints,
		"frontends": {testService("svc", withPorts(2000), func(s *source.Service) { s.ExternalIPs = addresses("198.51.0.0", 2000) })},
		"source ranges": {testService("svc", withPorts(2000), func(s *source.Service) {
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
		if len(problems) != 2 || !strings.Contains(problems[1].Message, "for one Service: Edgeway does not serve") {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func BenchmarkPlanManyPorts(b *testing.B) {
	for _, n := range []int{1000, 5000, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap := snapshotOf(manyPortService(n)...)
			b.ReportAllocs()
			for b.Loop() {
				New(testOptions()).Plan(snap, testHost(), nil)
			}
		})
	}
}

// The size limit is 170,000 endpoint-port pairs, regardless of the memory that a backend needs for an endpoint. With
// iptables, a Service with 170,000 pairs uses 1 GB of memory.
func TestLargestServiceIsEqualForAllBackends(t *testing.T) {
	for _, b := range []Budget{{0, 1200, 1000, 300}, {0, 4 << 10, 2 << 10, 6 << 10}} {
		opts := testOptions()
		opts.Budget = b
		for endpoints, served := range map[int]bool{1690: true, 1710: false} {
			w := newWorld(t, opts, testService("svc", withPorts(100)), wideSlice("svc", 100, 0, endpoints))
			if got := len(w.plan.Services) == 100; got != served {
				t.Errorf("%+v: 100 x %d endpoints are served: %v (%v)", b, endpoints, got, w.problems)
			}
		}
	}
}

// BenchmarkUpdateOverBudget changes one Service while the planner leaves out other Services. The planner must not sort
// all 10,000 Services after the change.
func BenchmarkUpdateOverBudget(b *testing.B) {
	for _, limit := range []int64{1e9, 1e6} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			opts := testOptions()
			opts.Budget = Budget{limit, 1, 1, 1}
			tr := tracker.New(tracker.Layer{Name: "kube"})
			sink := tr.Sink("kube")
			for i := range 10_000 {
				name := fmt.Sprint("s", i)
				sink.Upsert(testService(name, withPorts(1),
					func(s *source.Service) { s.ClusterIPs = []netip.Addr{numbered("10.96.0.0", i)} }))
				sink.Upsert(wideSlice(name, 1, 0, 110))
			}
			sink.Synced()
			p, host := New(opts), testHost()
			snap, _ := tr.Snapshot()
			plan, _ := p.Plan(snap, host, nil)
			for n := 0; b.Loop(); n++ {
				sink.Upsert(wideSlice("s7", 1, 0, 100+n%5))
				snap, _ := tr.Snapshot()
				plan, _ = p.Plan(snap, host, plan)
			}
		})
	}
}

// While the total exceeds the limit, the planner reselects the excluded Services after each change to a Service.
// BenchmarkUpdateOverBudget measures the cost.
func TestChangesOverBudget(t *testing.T) {
	const services = 10_000
	b := newBudget(Budget{100*services - 1, 1, 1, 1})
	for i := range services {
		s := testService(fmt.Sprint("s", i))
		b.set(nameOf(s), size{s, 100})
	}
	for i := range 200 {
		s := testService("s7")
		b.set(nameOf(s), size{s, 100 + 100*int64(i%2)})
		if out := b.excess(); len(out) != 1 || i%2 == 1 && !maps.Equal(out, map[tracker.Name]struct{}{nameOf(s): {}}) {
			t.Fatalf("change %d leaves out %v", i, out)
		}
	}
}

func TestBudgetIsIndependentOfHistory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	limits := Budget{Limit: 3000, Endpoint: 1}
	b := newBudget(limits)
	present := map[tracker.Name]size{}
	for step := range 20_000 {
		s := testService(fmt.Sprint("s", rng.IntN(40)), func(s *source.Service) {
			if s.Created = s.Created.Add(time.Duration(rng.IntN(3)) * time.Hour); rng.IntN(4) == 0 {
				s.Created = time.Time{}
			}
		})
		sz := size{s, []int64{0, 1, 100, 100, 150, maxServiceEndpoints, maxServiceEndpoints + 1}[rng.IntN(7)]}
		if present[nameOf(s)] = sz; sz.bytes == 0 {
			delete(present, nameOf(s))
			sz = size{}
		}
		b.set(nameOf(s), sz)
		fresh := newBudget(limits)
		for name, sz := range present {
			fresh.set(name, sz)
		}
		if got, want := b.excess(), fresh.excess(); !maps.Equal(got, want) {
			t.Fatalf("step %d: left out are %v, want %v", step, got, want)
		}
	}
}
