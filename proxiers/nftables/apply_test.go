package nftables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func TestFirstSyncInChunks(t *testing.T) {
	newHost(t)
	var steps []int
	p, drift := testProxier(t, func(env *proxiers.Env) {
		env.Progress = func(done, total int) {
			if total != 3000 {
				t.Errorf("progress with total %d, want 3000", total)
			}
			steps = append(steps, done)
		}
	})
	full := newPlan(testNode(), manyServices(3000, 5)...)
	apply(t, p, nil, full)
	if len(steps) < 3 || !slices.IsSorted(steps) || steps[len(steps)-1] != 3000 {
		t.Errorf("progress %v, want some steps up to 3000", steps)
	}
	chunked := kernelState(t, p)
	if drift.count() != 0 {
		t.Errorf("drift reported for our own transactions: %q", drift.reasons)
	}
	forceRecreate(t, p, full)
	if diff := firstDifference(chunked, kernelState(t, p)); diff != "" {
		t.Errorf("chunks and one transaction lead to different states: %s", diff)
	}
}

// forceRecreate changes a set's type, so the next full sync replaces the tables in one transaction.
func forceRecreate(t *testing.T, p *proxier, next *plan.Plan) {
	t.Helper()
	nft(t, "flush ruleset\nadd table ip edgeway\nadd set ip edgeway services { type ipv4_addr; }")
	apply(t, p, nil, next)
}

// The rules drop connections to Services that Edgeway has not written yet, unless another backend still serves them.
func TestTakeoverRejectsOnlyAtEnd(t *testing.T) {
	for _, takeover := range []bool{false, true} {
		newHost(t)
		var refuses []bool
		p, _ := testProxier(t, func(env *proxiers.Env) {
			env.Takeover = takeover
			env.Progress = func(int, int) {
				refuses = append(refuses, strings.Contains(nft(t, "list set ip edgeway service-cidrs"), "elements"))
			}
		})
		full := newPlan(testNode(), manyServices(3000, 5)...)
		apply(t, p, nil, full)
		if want := []bool{!takeover, !takeover, true}; !slices.Equal(refuses, want) {
			t.Errorf("takeover %v: addresses of Service CIDRs are dropped after each chunk: %v, want %v", takeover,
				refuses, want)
		}
		chunked := kernelState(t, p)
		forceRecreate(t, p, full)
		if diff := firstDifference(chunked, kernelState(t, p)); diff != "" {
			t.Errorf("takeover %v and one transaction lead to different states: %s", takeover, diff)
		}
	}
}

// Without Service CIDRs, as on a host with only manifests, Edgeway writes nothing at the end of a takeover.
func TestTakeoverWithoutServiceCIDRs(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t, func(env *proxiers.Env) { env.Takeover = true })
	node := *testNode()
	node.ServiceCIDRs = nil
	apply(t, p, nil, newPlan(&node, manyServices(2, 5)...))
}

// TestPartialEqualsFull applies random plans in partial syncs, and compares the resulting tables with the tables after
// a first sync of the same plan.
func TestPartialEqualsFull(t *testing.T) {
	sequences := 200
	if testing.Short() {
		sequences = 40
	}
	newHost(t)
	p, drift := testProxier(t)
	expected := 0
	for seed := range sequences {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		cur := randomPlan(rng, nil)
		apply(t, p, nil, cur)
		for range 4 {
			next := randomPlan(rng, cur)
			apply(t, p, cur, next)
			cur = next
		}
		partial := kernelState(t, p)
		if seed%2 == 0 {
			nft(t, "delete table ip edgeway\ndelete table ip6 edgeway")
			drift.wait(t)
			expected++
		}
		apply(t, p, nil, cur)
		if diff := firstDifference(partial, kernelState(t, p)); diff != "" {
			t.Fatalf("sequence %d: partial syncs and a full one lead to different states: %s", seed, diff)
		}
	}
	if drift.count() != expected {
		t.Errorf("drift reported for our own transactions: %q", drift.reasons)
	}
}

func randomPlan(rng *rand.Rand, prev *plan.Plan) *plan.Plan {
	next := &plan.Plan{Node: testNode()}
	if prev != nil && rng.IntN(3) > 0 {
		next.Node = prev.Node
	} else {
		next.Node.LoopbackAddrs = []netip.Addr{addr("127.0.0.1"), addr("::1")}[:rng.IntN(3)]
		for i := range rng.IntN(4) {
			next.Node.NodePortAddrs = append(next.Node.NodePortAddrs, addr(fmt.Sprintf("192.0.2.%d", 10+i)))
			next.Node.PodSources = append(next.Node.PodSources, prefix(fmt.Sprintf("10.%d.0.0/16", 200+i)),
				prefix(fmt.Sprintf("10.%d.3.0/24", 200+i)))
		}
		next.Node.PodSources = plan.NormalizePrefixes(next.Node.PodSources)
	}
	for i := range 8 {
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			for _, proto := range []plan.Protocol{plan.TCP, plan.UDP} {
				svc := randomService(rng, i, f, proto)
				if old := prev.Find(svc.Name, f); old != nil && rng.IntN(3) > 0 {
					svc = old
				}
				if rng.IntN(4) > 0 {
					next.Services = append(next.Services, svc)
				}
			}
		}
	}
	slices.SortFunc(next.Services, func(a, b *plan.ServicePort) int { return a.Compare(b) })
	return next
}

func randomService(rng *rand.Rand, i int, f plan.Family, proto plan.Protocol) *plan.ServicePort {
	ip := func(v4, v6 string, n int) netip.Addr {
		if f == plan.IPv4 {
			return addr(fmt.Sprintf(v4, n))
		}
		return addr(fmt.Sprintf(v6, n))
	}
	svc := &plan.ServicePort{Name: plan.ServicePortName{
		Namespace: "default", Name: fmt.Sprintf("s%d", i),
		Protocol: proto,
	}, Family: f}
	if rng.IntN(4) == 0 {
		svc.Affinity = time.Duration(1+rng.IntN(2)) * time.Hour
	}
	for pool := range svc.Pools {
		for n := range 6 {
			if rng.IntN(2) == 0 {
				a := ip("10.244.0.%d", "fd00:10:244::%d", n+1)
				svc.Pools[pool] = append(svc.Pools[pool],
					plan.Endpoint{Addr: netip.AddrPortFrom(a, uint16(8080+rng.IntN(2))), Local: n < 3})
			}
		}
	}
	routes := func() (r [3]plan.Route) {
		for o := range r {
			r[o] = plan.Route{
				Verdict: plan.Verdict(max(0, rng.IntN(5)-2)), Pool: plan.Pool(rng.IntN(2)),
				SNAT: rng.IntN(2) == 0,
			}
			if len(svc.Pools[r[o].Pool]) == 0 {
				r[o] = plan.Route{Verdict: plan.Reject}
			}
		}
		return r
	}
	svc.Frontends = []plan.Frontend{{
		Kind: plan.ClusterIP, Addr: ip("10.96.0.%d", "fd00:10:96::%d", i/2+1),
		Port: uint16(80 + i%2), Routes: routes(),
	}}
	if rng.IntN(2) == 0 {
		lb := plan.Frontend{
			Kind: plan.LoadBalancerIP, Addr: ip("203.0.113.%d", "2001:db8:113::%d", i+1), Port: 80,
			Routes: routes(),
		}
		if rng.IntN(2) == 0 {
			lb.AllowFrom = plan.NormalizePrefixes([]netip.Prefix{netip.PrefixFrom(ip("198.51.%d.0", "2001:db8:%d::",
				rng.IntN(3)), 16+rng.IntN(8)), netip.PrefixFrom(ip("198.51.%d.0", "2001:db8:%d::", rng.IntN(3)), 24)})
		}
		svc.Frontends = append(svc.Frontends, lb)
	}
	if rng.IntN(2) == 0 {
		svc.Frontends = append(svc.Frontends, plan.Frontend{
			Kind: plan.NodePort, Port: uint16(30000 + i),
			Routes: routes(),
		})
	}
	svc.Seal()
	return svc
}

// TestFullSyncOverGarbage runs a full sync over objects left behind by an older version, another program or an
// incomplete deletion.
func TestFullSyncOverGarbage(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t)
	full := newPlan(testNode(), webServices()...)
	apply(t, p, nil, full)
	want := kernelState(t, p)
	for name, script := range map[string]string{
		"nothing":             "flush ruleset",
		"one family":          "delete table ip edgeway",
		"empty table":         "flush ruleset\nadd table ip edgeway",
		"foreign element":     "add element ip edgeway cluster-ips { 198.51.100.9 }",
		"missing elements":    "flush map ip edgeway endpoints-tcp\nflush set ip edgeway cluster-ips",
		"changed element":     "delete element ip edgeway services { 10.96.0.2 . tcp . 80 }\nadd element ip edgeway services { 10.96.0.2 . tcp . 80 : 1:1 }\nflush map ip6 edgeway classes\nadd element ip6 edgeway classes { 1:1 : drop }",
		"foreign range":       "add element ip edgeway allowed { 10.96.0.2 . tcp . 80 . 198.51.100.3-198.51.100.9 }",
		"foreign rule":        "insert rule ip edgeway services drop",
		"missing rules":       "flush chain ip edgeway services\nflush chain ip6 edgeway nat-postrouting",
		"foreign objects":     "add chain ip edgeway strange\nadd rule ip edgeway strange drop\nadd set ip edgeway odd { type ipv4_addr; }\nadd map ip edgeway odder { type ipv4_addr : verdict; }\nadd element ip edgeway odder { 192.0.2.1 : goto strange }",
		"foreign base chain":  "add chain ip edgeway stranger { type filter hook input priority 0; policy drop; }",
		"changed policy":      "add chain ip edgeway nat-prerouting { policy drop; }",
		"another type of set": "flush ruleset\nadd table ip edgeway\nadd set ip edgeway services { type ipv4_addr; }",
		"another hook":        "flush ruleset\nadd table ip edgeway\nadd chain ip edgeway nat-prerouting { type filter hook prerouting priority 0; }",
		"no counter":          "flush chain ip edgeway loopback\ndelete counter ip edgeway loopback-rejected-udp",
		"dormant table":       "add table ip edgeway { flags dormant; }",
	} {
		nft(t, script) // subtests would run on other threads and therefore in other namespaces
		apply(t, p, nil, full)
		if diff := firstDifference(want, kernelState(t, p)); diff != "" {
			t.Errorf("%s: a full sync left a difference: %s", name, diff)
		}
	}
}

func TestRefusedContentIsReported(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t)
	good := newPlan(testNode(), webServices()...)
	apply(t, p, nil, good)
	want := kernelState(t, p)
	twice := service("twice", []plan.Frontend{clusterIP("10.96.0.2", 80)}, endpoint("10.244.1.1:1"))
	bad := newPlan(good.Node, append(webServices(), twice)...)
	err := p.Apply(t.Context(), proxiers.NewChange(good, bad))
	if !errors.Is(err, proxiers.ErrRefused) {
		t.Errorf("partial sync: error %v, want ErrRefused", err)
	}
	if err := p.Apply(t.Context(), proxiers.NewChange(nil, bad)); !errors.Is(err, proxiers.ErrRefused) {
		t.Errorf("full sync: error %v, want ErrRefused", err)
	} else if strings.Count(err.Error(), "\n") != 0 || len(err.Error()) > 400 {
		t.Errorf("error is not short: %q", err)
	}
	apply(t, p, nil, good)
	if diff := firstDifference(want, kernelState(t, p)); diff != "" {
		t.Errorf("after the refusal: %s", diff)
	}
}

func TestCancelledApplyIsNoRefusal(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.Apply(ctx, proxiers.NewChange(nil, newPlan(testNode(), webServices()...)))
	if !errors.Is(err, ctx.Err()) || errors.Is(err, proxiers.ErrRefused) {
		t.Errorf("error %v, want %v", err, ctx.Err())
	}
}

// Maintain deletes chains and maps that have been unused for a minute, even if the plan does not change.
func TestIdleObjectsAreDeletedLater(t *testing.T) {
	newHost(t)
	s, env := schema(false), testEnv(plan.IPv4, plan.IPv6)
	if s.IdleTimeout != time.Minute {
		t.Errorf("idle objects are kept for %s, want a minute", s.IdleTimeout)
	}
	s.IdleTimeout = 300 * time.Millisecond
	env.Logger, env.Drift, env.Progress = slog.New(slog.DiscardHandler), func(string) {}, func(int, int) {}
	var p proxiers.Proxier = start(t, s, env)
	tender := p.(proxiers.Maintainer)
	full := newPlan(testNode(), webServices()...)
	none := newPlan(full.Node)
	apply(t, p, nil, full)
	if due := tender.Due(); !due.IsZero() {
		t.Errorf("due at %s with nothing idle", due)
	}
	before := time.Now()
	apply(t, p, full, none)
	due := tender.Due()
	if early, late := before.Add(s.IdleTimeout), time.Now().Add(s.IdleTimeout); due.Before(early) || due.After(late) {
		t.Fatalf("due at %s, want between %s and %s", due, early, late)
	}
	left := func() (found []string) {
		state := nft(t, "list ruleset")
		for _, name := range []string{"chain addr-", "chain port-", "chain learn-8", "map clients-"} {
			if strings.Contains(state, name) {
				found = append(found, name)
			}
		}
		return found
	}
	if err := tender.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	// On a busy machine, the objects may already be due here.
	if got := left(); len(got) != 4 && time.Now().Before(due) {
		t.Errorf("too early there are only %q", got)
	}
	time.Sleep(time.Until(due))
	if err := tender.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != nil || !tender.Due().IsZero() {
		t.Errorf("when it is due, %q remain, and the next is due at %s", got, tender.Due())
	}
	apply(t, p, none, full)
}

// If the kernel rejects the deletion of an object, Maintain returns the error and retries later.
func TestIdleObjectInUseIsRetried(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t)
	full := newPlan(testNode(), webServices()[:1]...)
	none := newPlan(full.Node)
	apply(t, p, nil, full)
	apply(t, p, full, none)
	nft(t, "add chain ip edgeway strange\nadd rule ip edgeway strange jump addr-tcp-c2-c2m-c2m")
	before := time.Now()
	if err := p.Maintain(t.Context()); err == nil {
		t.Error("a chain that a foreign rule leads to was deleted")
	}
	if !p.Due().After(before) {
		t.Errorf("due at %s, want later than %s", p.Due(), before)
	}
	nft(t, "delete chain ip edgeway strange")
	if err := p.Maintain(t.Context()); err != nil || !p.Due().IsZero() {
		t.Errorf("error %v, due at %s", err, p.Due())
	}
}

func TestProbeAndCleanup(t *testing.T) {
	newHost(t)
	if err := Component().Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := nft(t, "list ruleset"); state != "" {
		t.Errorf("the probe left rules:\n%s", state)
	}
	nft(t, "add table ip edgeway\nadd table ip6 edgeway\nadd table inet edgeway\nadd table ip other")
	for range 2 { // the second Cleanup finds no table
		if err := Component().Cleanup(t.Context(), proxiers.Env{}); err != nil {
			t.Fatal(err)
		}
	}
	if state := nft(t, "list ruleset"); strings.Contains(state, "edgeway") || !strings.Contains(state, "other") {
		t.Errorf("after cleanup:\n%s", state)
	}
}

func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Component().Probe(t.Context()); !errors.Is(err, proxiers.ErrUnsupported) ||
		!strings.Contains(err.Error(), "install") {
		t.Errorf("error %v, want ErrUnsupported and what to install", err)
	}
}
