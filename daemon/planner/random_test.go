package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// randomObjects creates random objects from a small set of names, addresses and ports, so that many objects conflict.
type randomObjects struct{ *rand.Rand }

func (c randomObjects) chance(percent int) bool { return c.IntN(100) < percent }

func pick[T any](c randomObjects, from ...T) T { return from[c.IntN(len(from))] }

func some[T any](c randomObjects, percent int, from ...T) (out []T) {
	for _, v := range from {
		if c.chance(percent) {
			out = append(out, v)
		}
	}
	return out
}

func (c randomObjects) service() *source.Service {
	s := &source.Service{
		Namespace: pick(c, "ns", "other"), Name: fmt.Sprint("svc", c.IntN(4)), UID: fmt.Sprint(c.IntN(3)),
		Created:         pick(c, time.Time{}, time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0)),
		ExternalIPs:     some(c, 30, ips("198.51.100.1", "198.51.100.2", hostIP, "2001:db8:1::1", "198.51.100.7")...),
		LoadBalancerIPs: some(c, 30, ips("198.51.100.1", "198.51.100.3", "2001:db8:1::1", "192.0.2.200")...),
		SourceRanges:    some(c, 20, cidrs("192.0.2.0/24", "203.0.113.0/24", "203.0.113.0/25", "0.0.0.0/0", "2001:db8::/32")...),
		BlockedFamilies: some(c, 10, plan.IPv4, plan.IPv6),
		Affinity:        pick(c, 0, 0, time.Hour),
		InternalLocal:   c.chance(30),
		ExternalLocal:   c.chance(50),
		LongLived:       c.chance(20),
		Manifest:        c.chance(30),
	}
	s.ClusterIPs = append(some(c, 90, ip(fmt.Sprint("10.96.0.", c.IntN(5)))),
		some(c, 50, ip(fmt.Sprint("fd00:96::", c.IntN(5))))...)
	if s.ExternalLocal && c.chance(50) {
		s.HealthCheckNodePort = pick[uint16](c, 30001, 32000, 32001, 80, 81)
	}
	names := some(c, 60, "http", "metrics")
	for i, name := range names {
		s.Ports = append(s.Ports, source.ServicePort{
			Name: name, Protocol: pick(c, plan.TCP, plan.UDP), Port: uint16(80 + i), NodePort: uint16(pick(c, 0, 0, 30000, 30001, 30002) + 10*i),
		})
	}
	return s
}

func (c randomObjects) slice() *source.EndpointSlice {
	s := &source.EndpointSlice{
		Namespace: pick(c, "ns", "other"), Name: fmt.Sprint("slice", c.IntN(8)), Service: fmt.Sprint("svc", c.IntN(4)),
		Family: pick(c, plan.IPv4, plan.IPv4, plan.IPv6), Manifest: c.chance(30),
	}
	for _, name := range some(c, 80, "http", "metrics") {
		protocol, port := pick(c, plan.TCP, plan.UDP), pick[uint16](c, 8080, 9090)
		s.Ports = append(s.Ports, source.SlicePort{Name: name, Protocol: protocol, Port: port})
	}
	for range c.IntN(4) {
		addr := ip(fmt.Sprint("10.1.0.", c.IntN(6)))
		if s.Family == plan.IPv6 {
			addr = ip(fmt.Sprint("fd00:1::", c.IntN(6)))
		}
		e := source.Endpoint{Addr: addr, Terminating: c.chance(40), NodeName: pick(c, "", hostName, "there")}
		e.Ready = !e.Terminating && c.chance(70)
		e.Serving = e.Ready || e.Terminating && c.chance(60)
		if c.chance(70) {
			e.Hints = &source.Hints{ForZones: some(c, 60, "zone1", "zone2"), ForNodes: some(c, 60, hostName, "there")}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func (c randomObjects) host() *nodeinfo.Host {
	h := &nodeinfo.Host{}
	for _, a := range ips("10.96.0.3", "127.0.0.1", "192.0.2.200", hostIP, "198.51.100.2", "::1", hostIP6, "fe80::1",
		"fe80::2") {
		if c.chance(70) {
			h.Addrs = append(h.Addrs, nodeinfo.Addr{
				Addr: a, Interface: "eth0", Primary: a == ip(hostIP) || a == ip(hostIP6), Dummy: c.chance(20),
			})
		}
	}
	h.Gateways, h.Broadcasts = some(c, 20, ips("198.51.100.3", "fe80::9")...),
		some(c, 20, ips("10.1.0.5", "198.51.100.1")...)
	return h
}

func (c randomObjects) options() Options {
	o := testOptions()
	o.Families = pick(c, nil, []plan.Family{plan.IPv4}, []plan.Family{plan.IPv4, plan.IPv6})
	o.Node.Name = pick(c, "", hostName)
	o.Node.LocalPolicy = pick(c, config.LocalDrop, config.LocalCluster)
	o.Proxy.MasqueradeAll = c.chance(30)
	o.Node.Zone = pick(c, "", "", "zone1")
	o.Proxy.LocalDetection = pick(c, config.DetectNone, config.DetectClusterCIDR, config.DetectNodeCIDR,
		config.DetectBridge)
	o.Proxy.BridgeInterface = "cni0"
	o.Proxy.NodePortAddresses.Prefixes = some(c, 30, cidrs("0.0.0.0/0", "198.51.100.0/24", "::/0")...)
	o.Proxy.ServiceCIDRs = some(c, 50, cidrs("10.96.0.0/16", "10.96.3.4/12")...)
	o.OwnRoutes = c.chance(50)
	o.Proxy.AllowExternalIPs.Host, o.Proxy.AllowLoadBalancers.Host = c.chance(30), c.chance(50)
	o.OwnPorts = pick(c, nil, nil, map[uint16]string{81: "health.address"})
	o.Proxy.NodePortRange = pick(c, config.PortRange{}, config.PortRange{First: 30001, Last: 32000})
	o.Proxy.DenyEndpoints.Host = c.chance(50)
	o.Budget = pick(c, Budget{}, Budget{}, Budget{0, maxServiceEndpoints / 9, maxServiceEndpoints / 9, 1},
		Budget{30, 1, 1, 1}, Budget{60, 4, 1, 1})
	o.Checks = Checks{Manifests: c.chance(50), API: c.chance(50)}
	return o
}

func (c randomObjects) dead() *endpointcheck.DeadEndpoints {
	var all []netip.AddrPort
	for i := range 6 {
		for _, port := range []uint16{8080, 9090} {
			all = append(all, netip.AddrPortFrom(ip(fmt.Sprint("10.1.0.", i)), port),
				netip.AddrPortFrom(ip(fmt.Sprint("fd00:1::", i)), port))
		}
	}
	return deadSet(some(c, pick(c, 0, 10, 50, 90), all...)...)
}

func (c randomObjects) step(sink source.Sink, host *nodeinfo.Host) *nodeinfo.Host {
	for range 1 + c.IntN(3) {
		switch n := c.IntN(21); {
		case n < 7:
			sink.Upsert(c.service())
		case n < 10:
			sink.Delete(c.service().Key())
		case n < 15:
			sink.Upsert(c.slice())
		case n < 17:
			sink.Delete(c.slice().Key())
		case n == 17:
			host = c.host()
		case n == 18:
			ranges := some(c, 70, cidrs("10.96.0.0/24", "10.0.0.0/8", "fd00:96::/64")...)
			cidr := &source.ServiceCIDR{Name: pick(c, "a", "b"), CIDRs: ranges}
			if c.chance(30) {
				sink.Delete(cidr.Key())
			} else {
				sink.Upsert(cidr)
			}
		case n == 19:
			api := apiServer(pick(c, "198.51.100.7", "198.51.100.1", "192.0.2.200", "127.0.0.1"))
			api.Name = pick(c, api.Name, api.Name, "https://localhost:81")
			sink.Upsert(api)
		default:
			node := &source.Node{
				Name: hostName, Addresses: some(c, 70, ips(hostIP, "192.0.2.200", hostIP6)...),
				Zone: pick(c, "", "zone1", "zone2"), PodCIDRs: some(c, 70, cidrs(podCIDR, "fd00:1::/64")...),
			}
			if c.chance(30) {
				sink.Delete(node.Key())
			} else {
				sink.Upsert(node)
			}
		}
	}
	return host
}

// After any changes, the incremental plan equals the plan that a new Planner computes from the same previous plan. The
// incremental plan is well formed and shares all unchanged objects with the previous plan. No owner loses a port,
// except to a request for a higher-ranking kind of address.
func TestIncrementalEqualsFromScratch(t *testing.T) {
	sequences := uint64(4000)
	if testing.Short() {
		sequences = 1000
	}
	for seed := range sequences {
		c := randomObjects{rand.New(rand.NewPCG(seed, 7))}
		opts, host := c.options(), c.host()
		var dead *endpointcheck.DeadEndpoints
		opts.Checks.DeadEndpoints = func() *endpointcheck.DeadEndpoints { return dead }
		tr := tracker.New(tracker.Layer{Name: "kube"})
		sink := tr.Sink("kube")
		sink.Synced()
		planner, checked := New(opts), map[netip.AddrPort]bool{}
		planner.rivals = pick(c, 1, 2, maxRivals)
		var prev *plan.Plan
		for range 25 {
			if c.chance(40) {
				dead = c.dead()
			}
			if c.chance(80) {
				host = c.step(sink, host)
			}
			snap, _ := tr.Snapshot()
			next, problems := planner.Plan(snap, host, prev)
			anew := New(opts)
			scratch, scratchProblems := anew.Plan(snap, host, prev)
			if !slices.Equal(problems, scratchProblems) {
				t.Fatalf("seed %d: problems %v, from scratch %v", seed, problems, scratchProblems)
			}
			if why := differ(next, scratch); why != "" {
				t.Fatalf("seed %d: incremental and from scratch: %s", seed, why)
			}
			verifyWellFormed(t, seed, next)
			verifyShared(t, seed, prev, next)
			verifyOwners(t, seed, prev, next, problems)
			if c.chance(70) {
				verifyEndpointChanges(t, seed, checked, planner.CheckChanges(), anew.CheckChanges().Add)
			}
			again := func(p *Planner) (*plan.Plan, []fault.Fault) { return p.Plan(snap, host, prev) }
			verifyVerdicts(t, seed, opts, next, again)
			prev = next
		}
	}
}

// verifyEndpointChanges fails the test unless the changes, applied to the previous endpoints, produce the full list of
// checked endpoints.
func verifyEndpointChanges(t *testing.T, seed uint64, checked map[netip.AddrPort]bool, change endpointcheck.Targets,
	want []netip.AddrPort,
) {
	t.Helper()
	if change.All {
		clear(checked)
	}
	for _, at := range change.Drop {
		delete(checked, at)
	}
	for _, at := range change.Add {
		checked[at] = true
	}
	got := slices.SortedFunc(maps.Keys(checked), netip.AddrPort.Compare)
	slices.SortFunc(want, netip.AddrPort.Compare)
	if !slices.Equal(got, want) {
		t.Fatalf("seed %d: checked are %v, want %v", seed, got, want)
	}
}

// verifyVerdicts fails the test if dead endpoints change the verdict for a connection.
func verifyVerdicts(t *testing.T, seed uint64, opts Options, p *plan.Plan,
	again func(*Planner) (*plan.Plan, []fault.Fault),
) {
	t.Helper()
	opts.Checks = Checks{}
	unchecked, _ := again(New(opts))
	sameRoutes := func(a, b *plan.ServicePort) bool {
		return a.Name == b.Name && reflect.DeepEqual(a.Frontends, b.Frontends)
	}
	if !slices.EqualFunc(p.Services, unchecked.Services, sameRoutes) {
		t.Fatalf("seed %d: the dead change more than endpoints: %+v and %+v", seed, p.Services, unchecked.Services)
	}
}

func differ(a, b *plan.Plan) string {
	if !reflect.DeepEqual(a.Node, b.Node) {
		return fmt.Sprintf("nodes %+v and %+v", a.Node, b.Node)
	}
	byValue := func(a, b *plan.ServicePort) bool { return reflect.DeepEqual(a, b) }
	if !slices.EqualFunc(a.Services, b.Services, byValue) {
		for _, s := range a.Services {
			if o := b.Find(s.Name, s.Family); o == nil || !byValue(s, o) {
				return fmt.Sprintf("%+v and %+v", s, o)
			}
		}
		return fmt.Sprintf("%d and %d ServicePorts", len(a.Services), len(b.Services))
	}
	if !slices.EqualFunc(a.HealthChecks, b.HealthChecks, func(a, b *plan.HealthCheck) bool { return *a == *b }) {
		return "health checks"
	}
	return ""
}

func verifyShared(t *testing.T, seed uint64, prev, next *plan.Plan) {
	t.Helper()
	if prev == nil {
		return
	}
	if next.Generation != prev.Generation+1 {
		t.Fatalf("seed %d: generation %d after %d", seed, next.Generation, prev.Generation)
	}
	if reflect.DeepEqual(prev.Node, next.Node) != (prev.Node == next.Node) {
		t.Fatalf("seed %d: an equal Node is not shared", seed)
	}
	for _, s := range next.Services {
		if old := prev.Find(s.Name, s.Family); old != nil && old != s && old.Digest == s.Digest {
			t.Fatalf("seed %d: %s did not change, and is not shared", seed, s.Name)
		}
	}
}

// verifyOwners fails the test if a port has a new owner, unless the new owner requests a higher-ranking kind of
// address.
func verifyOwners(t *testing.T, seed uint64, prev, next *plan.Plan, problems []fault.Fault) {
	t.Helper()
	if prev == nil {
		return
	}
	for _, p := range problems {
		for _, sp := range prev.Services {
			if p.Object.Name != sp.Name.Name || p.Object.Namespace != sp.Name.Namespace {
				continue
			}
			for _, f := range sp.Frontends {
				c := exclusivePort{f.Addr, sp.Name.Protocol, f.Port}
				// If the fault is about a host port, addrFields does not contain p.Field, and Index returns -1.
				kind := plan.FrontendKind(max(0, slices.Index(addrFields[:], p.Field)))
				if strings.HasPrefix(p.Message, c.String()+" belongs to") && !betterKind(next, c, kind) {
					t.Fatalf("seed %d: %s had it before: %s", seed, sp.Name, p)
				}
			}
		}
	}
}

func betterKind(p *plan.Plan, c exclusivePort, than plan.FrontendKind) bool {
	return slices.ContainsFunc(p.Services, func(sp *plan.ServicePort) bool {
		return sp.Name.Protocol == c.protocol && slices.ContainsFunc(sp.Frontends, func(f plan.Frontend) bool {
			return f.Addr == c.addr && f.Port == c.port && ranks[f.Kind] < ranks[than]
		})
	})
}

func verifyWellFormed(t *testing.T, seed uint64, p *plan.Plan) {
	t.Helper()
	if err := plantest.Validate(p); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if !slices.IsSortedFunc(p.HealthChecks, (*plan.HealthCheck).Compare) {
		t.Fatalf("seed %d: not in order", seed)
	}
	for _, list := range [][]netip.Addr{p.Node.HostAddrs, p.Node.NodePortAddrs} {
		if !slices.IsSortedFunc(list, netip.Addr.Compare) ||
			slices.ContainsFunc(p.Node.NodePortAddrs, netip.Addr.IsLoopback) {
			t.Fatalf("seed %d: addresses of the node: %+v", seed, p.Node)
		}
	}
	taken := map[string]bool{}
	for _, s := range p.Services {
		for i := range s.Frontends {
			verifyFrontend(t, seed, s, i)
			f := &s.Frontends[i]
			key := fmt.Sprint(s.Family, s.Name.Protocol, f.Addr, f.Port)
			if taken[key] {
				t.Fatalf("seed %d: %s has two owners", seed, key)
			}
			taken[key] = true
		}
		resealed := *s
		resealed.Seal()
		if resealed.Digest != s.Digest || len(s.Frontends) == 0 {
			t.Fatalf("seed %d: %+v is not sealed, or has no frontend", seed, s)
		}
		used := map[plan.Pool]bool{}
		for _, f := range s.Frontends {
			for _, r := range f.Routes {
				if r.Verdict == plan.Forward {
					used[r.Pool] = true
				}
			}
		}
		for pool, endpoints := range s.Pools {
			if (len(endpoints) > 0) != used[plan.Pool(pool)] || !used[plan.Pool(pool)] && endpoints != nil {
				t.Fatalf("seed %d: pool %v of %+v; used: %v", seed, plan.Pool(pool), s, slices.Collect(maps.Keys(used)))
			}
		}
	}
}

func verifyFrontend(t *testing.T, seed uint64, s *plan.ServicePort, i int) {
	t.Helper()
	f := &s.Frontends[i]
	if i > 0 && s.Frontends[i-1].Compare(f) >= 0 {
		t.Fatalf("seed %d: frontends out of order: %+v", seed, s.Frontends)
	}
	if f.Addr.IsValid() == (f.Kind == plan.NodePort) || f.Addr.IsValid() && plan.FamilyOf(f.Addr) != s.Family {
		t.Fatalf("seed %d: frontend %+v of %s %s", seed, f, s.Name, s.Family)
	}
	for _, r := range f.Routes {
		if r.Verdict != plan.Forward && (r.SNAT || r.Pool != 0) {
			t.Fatalf("seed %d: route %+v", seed, r)
		}
	}
}
