package planner

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// When an owner is deleted, the rival with the highest precedence becomes the owner, and the problems of all other
// rivals name the new owner.
func TestNextRivalBecomesOwner(t *testing.T) {
	const count = 3*maxRivals + 2
	w := newWorld(t, testOptions())
	var list []*source.Service
	for i := range count {
		s := rival(fmt.Sprint(i), 1, func(s *source.Service) { s.Created = time.Unix(int64(1000-i), 0) })
		w.put(s) // each Service is older than the previous Services
		list = append(list, s)
	}
	for i, owner := 0, list[0]; ; owner = list[len(list)-i] {
		w.wantOwner(owner.Name)
		if want := count - i - 1; len(w.problems) != want {
			t.Fatalf("%d problems with %d rivals", len(w.problems), want)
		}
		for _, p := range w.problems {
			if want := "198.51.100.10:80/TCP belongs to Service ns/" + owner.Name; p.Message != want {
				t.Fatalf("%s, want %s", p, want)
			}
		}
		if i++; i == count {
			return
		}
		w.remove(owner)
	}
}

func TestRivalsKeepHighestPrecedence(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		limit, r := 1+rng.IntN(3), rivals{}
		var all []request
		for range 20 {
			if len(all) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(all))
				r.remove(all[i].service)
				all = slices.Delete(all, i, i+1)
			} else {
				b := request{&source.Service{UID: fmt.Sprint(rng.IntN(1 << 20))}, plan.FrontendKind(rng.IntN(3))}
				r.add(b, limit)
				all = append(all, b)
			}
			slices.SortFunc(all, compareRequests)
			if n := len(r.requests); n > limit || n+r.otherCount != len(all) || !slices.Equal(r.requests, all[:n]) {
				t.Fatalf("limit %d: %v and %d more, of %v", limit, r.requests, r.otherCount, all)
			}
		}
	}
}

// The test creates 300 Services of 6 kB each that request the same 15,000 combinations of address and port, and then
// deletes the Service that owns them. The planner must not store all 4.5 million requests, because they would occupy
// 1,200 MB.
func TestManyRivalsUseLittleMemory(t *testing.T) {
	const ports, addrs = 100, 150
	greedy := func(i int) *source.Service {
		s := testService(fmt.Sprint("svc-", i), func(s *source.Service) {
			s.ClusterIPs, s.Ports = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}, nil
		})
		for n := range addrs {
			s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{198, 51, 100, byte(n + 1)}))
		}
		for n := range ports {
			s.Ports = append(s.Ports, source.ServicePort{
				Name: fmt.Sprint("p", n), Protocol: plan.TCP,
				Port: uint16(n + 1),
			})
		}
		return s
	}
	// cost runs the planner for count Services, removes the owner, and runs the planner again. total is the number of
	// bytes that the two runs allocate, and live is the number of bytes that stay allocated.
	cost := func(count int) (total, live uint64) {
		tr := tracker.New(tracker.Layer{Name: "kube"})
		sink := tr.Sink("kube")
		for i := range count {
			sink.Upsert(greedy(i))
		}
		sink.Synced()
		planner, host := New(testOptions()), testHost()
		first, _ := tr.Snapshot()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		prev, _ := planner.Plan(first, host, nil)
		planner.ContestedPorts()
		stored := 0
		for _, r := range planner.owners.rivals {
			stored += len(r.requests)
		}
		if most := ports * addrs * maxRivals; stored > most {
			t.Errorf("%d Services: %d requests are stored, want at most %d", count, stored, most)
		}
		sink.Delete(greedy(0).Key())
		second, _ := tr.Snapshot()
		next, problems := planner.Plan(second, host, prev)
		planner.ContestedPorts()
		runtime.ReadMemStats(&after)
		total = after.TotalAlloc - before.TotalAlloc
		runtime.GC()
		runtime.ReadMemStats(&after)
		if last := problems[len(problems)-1]; len(next.Services) != ports+ports*(count-2) ||
			last.Message != fmt.Sprint(ports*addrs-20, " more faults") {
			t.Fatalf("%d ServicePorts, last problem %v", len(next.Services), last)
		}
		runtime.KeepAlive(planner)
		return total, after.HeapAlloc - before.HeapAlloc
	}
	count := 300
	if testing.Short() {
		count = 50 // with the race detector, the test takes ten times as long
	}
	total, live := cost(count)
	t.Logf("%d Services: %d MB allocated, %d MB stay", count, total>>20, live>>20)
	if total > 180<<20 || live > 28<<20 {
		t.Errorf("%d Services: %d MB allocated, %d MB stay; want at most 180 and 28", count, total>>20, live>>20)
	}
}
