package localnodeport

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers/plan"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// servicePoolOf returns a servicePool with the endpoints. The endpoints must be sorted.
func servicePoolOf(affinity time.Duration, endpoints ...string) servicePool {
	b := servicePool{svc: &plan.ServicePort{Affinity: affinity}}
	for _, e := range endpoints {
		b.pool = append(b.pool, plan.Endpoint{Addr: addrPort(e)})
	}
	return b
}

func testTarget(b servicePool) *target {
	return newTarget(b, slog.New(slog.DiscardHandler))
}

func pick(t *testing.T, tg *target, client string, tried ...string) string {
	t.Helper()
	var failed []netip.AddrPort
	for _, e := range tried {
		failed = append(failed, addrPort(e))
	}
	e, ok := tg.Pick(netip.AddrPortFrom(netip.MustParseAddr(client), 40000), failed)
	if !ok {
		t.Fatalf("no endpoint for %s", client)
	}
	return e.String()
}

var four = []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"}

func TestEndpointsAreChosenEvenly(t *testing.T) {
	tg := testTarget(servicePoolOf(0, four...))
	met := map[string]int{}
	for range 4000 {
		met[pick(t, tg, "127.0.0.1")]++
	}
	for _, e := range four {
		if met[e] < 835 || met[e] > 1165 { // the bounds are six standard deviations from the mean
			t.Errorf("%s was chosen %d times of 4000", e, met[e])
		}
	}
}

func TestFailedEndpointsAreNotRetried(t *testing.T) {
	tg := testTarget(servicePoolOf(0, four...))
	var tried []string
	for range four {
		e := pick(t, tg, "127.0.0.1", tried...)
		if slices.Contains(tried, e) {
			t.Fatalf("%s was tried already: %v", e, tried)
		}
		tg.Failed(addrPort(e), syscall.ECONNREFUSED)
		tried = append(tried, e)
	}
	var all []netip.AddrPort
	for _, e := range tried {
		all = append(all, addrPort(e))
	}
	if e, ok := tg.Pick(addrPort("127.0.0.1:40000"), all); ok {
		t.Errorf("all were tried, and %s is chosen", e)
	}
}

func TestDialAttemptsAreBounded(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("10.0.%d.%d:80", i/250, i%250))
	}
	tg := testTarget(servicePoolOf(0, many...))
	var tried []netip.AddrPort
	for {
		e, ok := tg.Pick(addrPort("127.0.0.1:40000"), tried)
		if !ok {
			break
		}
		tried = append(tried, e)
	}
	if len(tried) != maxDials {
		t.Errorf("%d endpoints were tried, want %d", len(tried), maxDials)
	}
}

func TestAffinityByAddressIsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tg := testTarget(servicePoolOf(time.Minute, four...))
		mine := pick(t, tg, "127.0.0.1")
		for range 10 {
			time.Sleep(50 * time.Second)
			if e := pick(t, tg, "::ffff:127.0.0.1"); e != mine {
				t.Fatalf("had %s, and %s within the time", mine, e)
			}
		}
		met, later := map[string]bool{}, map[string]bool{}
		for i := range 64 {
			met[pick(t, tg, fmt.Sprintf("127.0.1.%d", i))] = true
		}
		if len(met) != 4 {
			t.Errorf("64 clients met only %v", met)
		}
		for range 64 {
			time.Sleep(61 * time.Second)
			later[pick(t, tg, "127.0.0.1")] = true
		}
		if len(later) != 4 {
			t.Errorf("after their time clients still have %v", later)
		}
	})
}

func TestAffinityLeavesFailedEndpoint(t *testing.T) {
	tg := testTarget(servicePoolOf(time.Hour, four...))
	first := pick(t, tg, "127.0.0.1")
	second := pick(t, tg, "127.0.0.1", first)
	if second == first || pick(t, tg, "127.0.0.1") != second {
		t.Errorf("%s failed, %s was next, and is not kept", first, second)
	}
}

func TestAffinityEndsWithEndpoint(t *testing.T) {
	for range 20 { // a random choice may match the expected endpoint by chance
		tg := testTarget(servicePoolOf(time.Hour, four...))
		mine := pick(t, tg, "127.0.0.1")
		others := slices.DeleteFunc(slices.Clone(four), func(e string) bool { return e == mine })
		tg.update(servicePoolOf(time.Hour, others...))
		second := pick(t, tg, "127.0.0.1")
		tg.update(servicePoolOf(time.Hour, four...))
		if e := pick(t, tg, "127.0.0.1"); second == mine || e != second {
			t.Fatalf("%s was removed, then came %s, then it was back, then came %s", mine, second, e)
		}
	}
}

func TestAffinityEndsWhenTurnedOff(t *testing.T) {
	tg := testTarget(servicePoolOf(time.Hour, four...))
	pick(t, tg, "127.0.0.1")
	tg.update(servicePoolOf(0, four...))
	met := map[string]bool{}
	for range 64 {
		met[pick(t, tg, "127.0.0.1")] = true
	}
	if len(met) != 4 || len(tg.clients) != 0 {
		t.Errorf("one client met %v, %d are remembered", met, len(tg.clients))
	}
}

func TestRememberedClientsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tg := testTarget(servicePoolOf(time.Minute, four...))
		fill := func(n int) {
			for i := range n {
				pick(t, tg, fmt.Sprintf("127.%d.%d.1", i/256, i%256))
			}
		}
		fill(2 * maxClients)
		if len(tg.clients) != maxClients {
			t.Errorf("%d clients are remembered, want %d", len(tg.clients), maxClients)
		}
		time.Sleep(2 * time.Minute)
		pick(t, tg, "127.255.0.1")
		if len(tg.clients) != 1 {
			t.Errorf("%d clients are remembered although only one has come lately", len(tg.clients))
		}
	})
}
