package planner

import (
	"fmt"
	"net/netip"
	"testing"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

type crowd struct {
	tr   *tracker.Tracker
	sink source.Sink
}

func newCrowd(n int) crowd {
	tr := tracker.New(tracker.Layer{Name: "kube"})
	c := crowd{tr, tr.Sink("kube")}
	for i := range n {
		c.sink.Upsert(crowdService(i))
		c.sink.Upsert(crowdSlice(i, 5))
	}
	c.sink.Synced()
	return c
}

func crowdService(i int) *source.Service {
	return testService(fmt.Sprint("svc-", i), func(s *source.Service) {
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}
		if i%5 == 0 {
			s.Ports[0].NodePort = uint16(20000 + i)
		}
	})
}

func crowdSlice(i, endpoints int) *source.EndpointSlice {
	s := testSlice(fmt.Sprint("svc-", i))
	for j := range endpoints {
		e := ep("10.2.0.0")
		e.Addr = netip.AddrFrom4([4]byte{10, 2 + byte(j), byte(i >> 8), byte(i)})
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func (c crowd) snapshot() *tracker.Snapshot {
	s, _ := c.tr.Snapshot()
	return s
}

var benchSizes = []int{100, 10000, 30000}

func BenchmarkPlanFromScratch(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap := newCrowd(n).snapshot()
			b.ReportAllocs()
			for b.Loop() {
				New(testOptions()).Plan(snap, testHost(), nil)
			}
		})
	}
}

// The benchmark does not measure the creation of the snapshot.
func benchmarkChange(b *testing.B, change func(i int) source.Object) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCrowd(n)
			planner, host := New(testOptions()), testHost()
			prev, _ := planner.Plan(c.snapshot(), host, nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				c.sink.Upsert(change(i))
				snap := c.snapshot()
				b.StartTimer()
				next, _ := planner.Plan(snap, host, prev)
				prev = next
			}
		})
	}
}

func BenchmarkPlanOneSlice(b *testing.B) {
	benchmarkChange(b, func(i int) source.Object { return crowdSlice(50, 4+i%2) })
}

func BenchmarkPlanOneService(b *testing.B) {
	benchmarkChange(b, func(i int) source.Object {
		s := crowdService(50)
		s.Ports[0].Port = uint16(80 + i%2)
		return s
	})
}

func BenchmarkDiffOneService(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCrowd(n)
			planner := New(testOptions())
			prev, _ := planner.Plan(c.snapshot(), testHost(), nil)
			c.sink.Upsert(crowdSlice(50, 4))
			next, _ := planner.Plan(c.snapshot(), testHost(), prev)
			for b.Loop() {
				if changed, _ := plan.Diff(prev, next); len(changed) != 1 {
					b.Fatal(len(changed))
				}
			}
		})
	}
}
