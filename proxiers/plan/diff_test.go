package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// sealedPort returns a sealed ServicePort whose contents depend on the given version.
func sealedPort(name string, family Family, version int) *ServicePort {
	s := &ServicePort{
		Name: ServicePortName{Namespace: "ns", Name: name, Protocol: TCP}, Family: family,
		LongLived: version%2 == 1,
	}
	s.Frontends = []Frontend{{Port: uint16(version / 2)}}
	s.Seal()
	return s
}

type portKey struct {
	name   ServicePortName
	family Family
}

func naiveDiff(prev, next *Plan) (changed, removed []*ServicePort) {
	index := func(p *Plan) map[portKey]*ServicePort {
		m := map[portKey]*ServicePort{}
		if p != nil {
			for _, s := range p.Services {
				m[portKey{s.Name, s.Family}] = s
			}
		}
		return m
	}
	old, cur := index(prev), index(next)
	for k, s := range cur {
		if o := old[k]; o == nil || o.Digest != s.Digest {
			changed = append(changed, s)
		}
	}
	for k, s := range old {
		if cur[k] == nil {
			removed = append(removed, s)
		}
	}
	slices.SortFunc(changed, (*ServicePort).Compare)
	slices.SortFunc(removed, (*ServicePort).Compare)
	return changed, removed
}

// randomPlan keeps some of the previous plan's ServicePorts, replaces some with an equal or a different ServicePort,
// and omits the rest.
func randomPlan(rng *rand.Rand, prev *Plan) *Plan {
	next := &Plan{}
	for i := range 12 {
		for _, family := range []Family{IPv4, IPv6} {
			s := sealedPort(fmt.Sprint("svc", i), family, rng.IntN(3))
			if rng.IntN(3) > 0 {
				if old := prev.Find(s.Name, family); old != nil {
					s = old
				}
			}
			if rng.IntN(4) > 0 {
				next.Services = append(next.Services, s)
			}
		}
	}
	slices.SortFunc(next.Services, (*ServicePort).Compare)
	return next
}

func TestDiffAgreesWithMaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var prev *Plan
	for i := range 5000 {
		next := randomPlan(rng, prev)
		if i%50 == 0 {
			prev = nil // a nil prev is an empty plan
		}
		changed, removed := Diff(prev, next)
		wantChanged, wantRemoved := naiveDiff(prev, next)
		if !slices.Equal(changed, wantChanged) || !slices.Equal(removed, wantRemoved) {
			t.Fatalf("round %d: got %d changed and %d removed, want %d and %d", i, len(changed), len(removed),
				len(wantChanged), len(wantRemoved))
		}
		prev = next
	}
}

func TestDiffOfEmptyPlans(t *testing.T) {
	some := &Plan{Services: []*ServicePort{sealedPort("a", IPv4, 0), sealedPort("a", IPv6, 0)}}
	if changed, removed := Diff(nil, some); len(changed) != 2 || removed != nil {
		t.Errorf("from nothing: %v, %v", changed, removed)
	}
	if changed, removed := Diff(some, &Plan{}); changed != nil || len(removed) != 2 {
		t.Errorf("to nothing: %v, %v", changed, removed)
	}
	if changed, removed := Diff(some, some); changed != nil || removed != nil {
		t.Errorf("to itself: %v, %v", changed, removed)
	}
}

func TestDiffDoesNotModifyPlans(t *testing.T) {
	a, b, c := sealedPort("a", IPv4, 0), sealedPort("b", IPv4, 0), sealedPort("c", IPv4, 0)
	list := []*ServicePort{a, b, c}
	changed, removed := Diff(&Plan{Services: list[:1]}, &Plan{Services: list[1:2]})
	_, _ = append(changed, a), append(removed, a)
	if list[1] != b || list[2] != c {
		t.Error("a plan's slice was written to")
	}
}

func TestFind(t *testing.T) {
	p := &Plan{Services: []*ServicePort{sealedPort("a", IPv4, 0), sealedPort("a", IPv6, 0), sealedPort("c", IPv4, 0)}}
	for _, s := range p.Services {
		if p.Find(s.Name, s.Family) != s {
			t.Errorf("%s %s is not found", s.Name, s.Family)
		}
	}
	for _, name := range []string{"", "b", "d"} {
		if got := p.Find(ServicePortName{Namespace: "ns", Name: name, Protocol: TCP}, IPv4); got != nil {
			t.Errorf("%q: found %s", name, got.Name)
		}
	}
	if (*Plan)(nil).Find(ServicePortName{}, IPv4) != nil {
		t.Error("found in no plan")
	}
}

func BenchmarkDiff(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			prev := &Plan{}
			for i := range n {
				prev.Services = append(prev.Services, sealedPort(fmt.Sprintf("svc%06d", i), IPv4, 0))
			}
			next := &Plan{Services: slices.Clone(prev.Services)}
			next.Services[n/2] = sealedPort(fmt.Sprintf("svc%06d", n/2), IPv4, 1)
			for b.Loop() {
				if changed, _ := Diff(prev, next); len(changed) != 1 {
					b.Fatal(len(changed))
				}
			}
		})
	}
}

func TestOfAndWithoutEndpoint(t *testing.T) {
	port := func(service, port string, family Family, fromHost, fromOutside Verdict) *ServicePort {
		f := Frontend{Routes: [3]Route{{Verdict: Reject}, {Verdict: Reject}, {Verdict: Reject}}}
		f.Routes[FromHost].Verdict, f.Routes[FromOutside].Verdict = fromHost, fromOutside
		return &ServicePort{
			Name: ServicePortName{Namespace: "ns", Name: service, Port: port, Protocol: TCP}, Family: family,
			Frontends: []Frontend{f},
		}
	}
	p := &Plan{Services: []*ServicePort{
		port("a", "http", IPv4, Forward, Drop), // the only endpoint is on another host
		port("b", "dns", IPv4, Reject, Reject), port("b", "http", IPv4, Reject, Reject),
		port("b", "http", IPv6, Forward, Forward),
		port("c", "http", IPv4, Reject, Reject), port("c", "http", IPv6, Reject, Reject),
	}}
	for name, want := range map[string][]*ServicePort{
		"": {}, "a": p.Services[:1], "b": p.Services[1:4], "bb": {}, "c": p.Services[4:], "d": {},
	} {
		if got := p.FindService("ns", name); !slices.Equal(got, want) {
			t.Errorf("of %q: %v, want %v", name, got, want)
		}
	}
	if got := ServicePortsWithoutEndpoint(p.Services); !slices.Equal(
		got, []*ServicePort{p.Services[1], p.Services[4]},
	) {
		t.Errorf("without an endpoint: %v", got)
	}
}
