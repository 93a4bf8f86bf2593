package nftables

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// The benchmarks report, beside the time, the CPU time of the nft processes, kernel included.

func BenchmarkFirstSync(b *testing.B) {
	for _, n := range []int{1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 5)...)
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

func BenchmarkRestart(b *testing.B) {
	for _, n := range []int{1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 5)...)
			mustApply(b, p, nil, full)
			childCPU(b)
			for b.Loop() {
				mustApply(b, p, nil, full)
			}
		})
	}
}

func BenchmarkOneEndpoint(b *testing.B) {
	for _, n := range []int{100, 1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 5)...)
			next := withEndpoints(full, n/2, full.Services[n/2].Pools[0][1:]...)
			mustApply(b, p, nil, full)
			mustApply(b, p, full, next) // makes the class
			childCPU(b)
			for b.Loop() {
				mustApply(b, p, next, full)
				full, next = next, full
			}
		})
	}
}

func benchProxier(b *testing.B) proxiers.Proxier {
	b.Helper()
	newHost(b)
	p, err := Component().New(b.Context(), proxiers.Env{
		Logger: slog.New(slog.DiscardHandler), Families: []plan.Family{plan.IPv4, plan.IPv6}, MasqueradeBit: 14,
		Drift: func(string) {}, Progress: func(int, int) {},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}

func mustApply(b *testing.B, p proxiers.Proxier, prev, next *plan.Plan) {
	b.Helper()
	if err := p.Apply(b.Context(), proxiers.NewChange(prev, next)); err != nil {
		b.Fatal(err)
	}
}

// childCPU reports the CPU time of child processes from now on.
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

// Services with long lists of endpoints: the time for one must not depend on how many there are.
func BenchmarkElements(b *testing.B) {
	for _, n := range []int{1, 10, 100, 500} {
		b.Run(fmt.Sprint(n, ",000"), func(b *testing.B) {
			p := benchProxier(b)
			full := newPlan(testNode(), manyServices(n, 1000)...)
			start := time.Now()
			mustApply(b, p, nil, full)
			first := time.Since(start)
			for b.Loop() { // forgets what was reported before
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
