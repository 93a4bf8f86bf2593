package doctor

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/plan"
)

// BenchmarkCheapChecks measures one run of the daemon's checks on a host without faults. The daemon runs its checks
// about once a minute if nothing changes. The metric "cpu-ms/op" includes the time spent in the kernel.
func BenchmarkCheapChecks(b *testing.B) {
	for _, c := range []struct{ services, endpoints, networks int }{{10, 3, 3}, {1000, 10, 100}, {10_000, 10, 500}} {
		b.Run(fmt.Sprintf("services=%d,networks=%d", c.services, c.networks), func(b *testing.B) {
			h := benchHost(c.services, c.endpoints, c.networks)
			l := newLab(b)
			l.sh("ip route add default via 192.0.2.1")
			l.sh("nft add table inet other; nft 'add chain inet other c { type filter hook forward priority 0; policy accept; }'")
			h.System, h.MaxLookups, h.Rules = Kernel{}, 64, firewall.New().Findings
			r := NewMonitor(MonitorOptions{Host: func() *Host { return h }})
			r.runOnce(b.Context())
			before := cpuTime(b)
			for b.Loop() {
				r.runOnce(b.Context())
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func benchHost(services, endpoints, networks int) *Host {
	var list []*plan.ServicePort
	for s := range services {
		svc := servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")}, "10.244.0.11:8080")
		svc.Name.Name, svc.Pools[plan.ClusterPool] = fmt.Sprintf("web-%d", s), nil
		for e := range endpoints {
			n := (s*endpoints + e) % networks
			at := netip.AddrFrom4([4]byte{10, byte(128 + n/250), byte(n % 250), byte(1 + (s*endpoints+e)/networks%250)})
			svc.Pools[plan.ClusterPool] = append(svc.Pools[plan.ClusterPool],
				plan.Endpoint{Addr: netip.AddrPortFrom(at, 8080)})
		}
		list = append(list, svc)
	}
	h, _ := testHost(list...)
	return h
}

// cpuTime returns the CPU time that all threads of this process have used.
func cpuTime(b testing.TB) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
