package conformance

import (
	"math"
	"net/netip"
	"sync"
	"testing"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// testBalance verifies that a backend distributes connections evenly across the endpoints of a Service (SEMANTICS row
// 17). The test uses two Services: one with a single pool of endpoints, and one with two pools.
func testBalance(t *testing.T, s *suite) {
	ses := s.startClean(t)
	p := ses.syncText(t, `
service five
  cluster pod-a pod-b far-a far-b far-b:9090
  ClusterIP cluster-1:80  all=cluster
service three
  cluster far-a
  local   pod-a pod-b pod-b:9090
  ClusterIP cluster-2:80  pod=local host=cluster outside=cluster
`)
	connections := scaleDown(500, 200)
	for _, svc := range p.Services {
		row, err := newRow("pod-c", netip.AddrPortFrom(svc.Frontends[0].Addr, 80), svc.Name.Protocol)
		if err != nil {
			t.Fatal(err)
		}
		d := p.Decide(row.packet())
		met := s.spread(t, row, d, connections)
		// With a bound of six standard deviations, a fair backend fails one run in 10^8.
		n := float64(len(d.Endpoints))
		mean := float64(connections) / n
		bound := 6 * math.Sqrt(mean*(1-1/n))
		for _, e := range d.Endpoints {
			if got := float64(met[s.world.endpointName(e.Addr)]); math.Abs(got-mean) > bound {
				t.Errorf("%s, %s: endpoint %s received %v of %d connections, want %.0f ± %.0f", svc.Name, svc.Family,
					e.Addr, got, connections, mean, bound)
			}
		}
	}
}

func (s *suite) spread(t *testing.T, r row, d plan.Decision, n int) map[string]int {
	met := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxBusyRows)
	for range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outcome := s.world.hosts[r.source].Connect(netlab.Flow{
				Protocol: r.protocol, From: r.from, To: r.to,
				Wait: responseTimeout,
			})
			mu.Lock()
			defer mu.Unlock()
			if outcome.Result != netlab.Served {
				t.Errorf("%s: %s", r, outcome)
			}
			met[outcome.Server]++
		})
	}
	wg.Wait()
	s.report.count(r, d, n)
	return met
}
