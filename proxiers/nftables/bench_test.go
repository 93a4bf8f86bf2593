package nftables

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// The benchmarks also report the CPU time of the nft processes, including time in the kernel.

func BenchmarkFirstSync(b *testing.B) {
	for _, n := range []int{1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 5)...)
			ownCPU(b)
			childCPU(b)
			for b.Loop() {
				mustApply(b, p, nil, full)
				b.StopTimer()
				if err := Component().Cleanup(b.Context(), proxiers.Env{}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkRestart measures a first sync over the tables that the previous process left behind.
func BenchmarkRestart(b *testing.B) {
	for _, n := range []int{1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 5)...)
			mustApply(b, p, nil, full)
			ownCPU(b)
			childCPU(b)
			for b.Loop() {
				b.StopTimer()
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
				p = newBenchProxier(b)
				b.StartTimer()
				mustApply(b, p, nil, full)
			}
			_ = p.Close()
		})
	}
}

// BenchmarkOneEndpoint measures only Apply, not the computation of the difference between the plans.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, n := range []int{100, 1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 5)...)
			list := slices.Clone(full.Services[n/2].Pools[0])
			list[2] = endpoint("192.0.2.99:8080")
			next := withEndpoints(full, n/2, list...)
			mustApply(b, p, nil, full)
			there, back := proxiers.NewChange(full, next), proxiers.NewChange(next, full)
			runtime.GC()
			ownCPU(b)
			childCPU(b)
			for b.Loop() {
				if err := p.Apply(b.Context(), there); err != nil {
					b.Fatal(err)
				}
				there, back = back, there
			}
		})
	}
}

// ownCPU reports the CPU time of the test process during the rest of the benchmark.
func ownCPU(b *testing.B) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	b.Cleanup(func() { b.ReportMetric((used()-before).Seconds()*1000/float64(b.N), "own-cpu-ms/op") })
}

func benchProxier(b *testing.B) proxiers.Proxier {
	b.Helper()
	newHost(b)
	p := newBenchProxier(b)
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// newBenchProxier returns a backend that the caller must close.
func newBenchProxier(b *testing.B) proxiers.Proxier {
	b.Helper()
	p, err := Component().New(b.Context(), proxiers.Env{
		Logger: slog.New(slog.DiscardHandler), Families: []plan.Family{plan.IPv4, plan.IPv6}, MasqueradeBit: 14,
		Drift: func(string) {}, Progress: func(int, int) {},
	})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func mustApply(b *testing.B, p proxiers.Proxier, prev, next *plan.Plan) {
	b.Helper()
	if err := p.Apply(b.Context(), proxiers.NewChange(prev, next)); err != nil {
		b.Fatal(err)
	}
}

// childCPU reports the CPU time of child processes during the rest of the benchmark.
func childCPU(b *testing.B) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	b.Cleanup(func() { b.ReportMetric((used()-before).Seconds()*1000/float64(b.N), "nft-cpu-ms/op") })
}

// BenchmarkElements applies Services with long lists of endpoints. The time per endpoint must not depend on the
// number of endpoints.
func BenchmarkElements(b *testing.B) {
	for _, n := range []int{1, 10, 100, 500} {
		b.Run(fmt.Sprint(n, ",000"), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 1000)...)
			start := time.Now()
			mustApply(b, p, nil, full)
			first := time.Since(start)
			for b.Loop() { // resets the metrics that were reported before the loop
				mustApply(b, p, nil, full)
			}
			b.ReportMetric(first.Seconds()*1e6/float64(n*1000), "first-us/element")
			b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*n*1000), "again-us/element")
			var used syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(used.Maxrss)/1024, "nft-peak-MB")
		})
	}
}
