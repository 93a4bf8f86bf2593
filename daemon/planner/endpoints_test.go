package planner

import (
	"net/netip"
	"slices"
	"testing"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Hints apply only if every ready endpoint has hints and at least one hint names this host or its zone. Node hints
// take precedence over zone hints.
func TestTopologyHints(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints []source.Endpoint
		want      []string
	}{
		"no hints":      {[]source.Endpoint{ep("10.2.0.1"), ep("10.2.0.2")}, []string{"10.2.0.1", "10.2.0.2"}},
		"zone":          {[]source.Endpoint{ep("10.2.0.1", "zone=z1"), ep("10.2.0.2", "zone=z2")}, []string{"10.2.0.1"}},
		"several zones": {[]source.Endpoint{ep("10.2.0.1", "zone=z1", "zone=z2"), ep("10.2.0.2", "zone=z2", "zone=z1")}, []string{"10.2.0.1", "10.2.0.2"}},
		"one without":   {[]source.Endpoint{ep("10.2.0.1", "zone=z1"), ep("10.2.0.2")}, []string{"10.2.0.1", "10.2.0.2"}},
		"none for us":   {[]source.Endpoint{ep("10.2.0.1", "zone=z2"), ep("10.2.0.2", "zone=z3")}, []string{"10.2.0.1", "10.2.0.2"}},
		"unready ignored": {
			[]source.Endpoint{ep("10.2.0.1", "zone=z1"), ep("10.2.0.2", "unready"), ep("10.2.0.3", "zone=z2")},
			[]string{"10.2.0.1"},
		},
		"only an unready one is for us": {
			[]source.Endpoint{ep("10.2.0.1", "zone=z1", "unready"), ep("10.2.0.2", "zone=z2")}, []string{"10.2.0.2"},
		},
		"node before zone": {
			[]source.Endpoint{ep("10.2.0.1", "zone=z1", "node=there"), ep("10.2.0.2", "zone=z2", "node=here")},
			[]string{"10.2.0.2"},
		},
		"node hints that are not for us, then zone": {
			[]source.Endpoint{ep("10.2.0.1", "zone=z1", "node=there"), ep("10.2.0.2", "zone=z2", "node=else")},
			[]string{"10.2.0.1"},
		},
		"node hint missing on one, then zone": {
			[]source.Endpoint{ep("10.2.0.1", "zone=z1"), ep("10.2.0.2", "zone=z2", "node=here")}, []string{"10.2.0.1"},
		},
		"stopping ones have no topology": {
			[]source.Endpoint{ep("10.2.0.1", "zone=z1", "stopping"), ep("10.2.0.2", "zone=z2", "stopping")},
			[]string{"10.2.0.1", "10.2.0.2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Node.Zone = "z1"
			w := newWorld(t, opts, testService("svc"), testSlice("svc", c.endpoints...))
			wantAddrs(t, "cluster pool", w.find("svc", plan.IPv4).Pools[plan.ClusterPool], c.want...)
		})
	}
}

func TestLocalPoolIgnoresHints(t *testing.T) {
	opts := testOptions()
	opts.Node.Zone = "z1"
	local := func(s *source.Service) { s.ExternalLocal = true }
	w := newWorld(t, opts, testService("svc", everywhere, local),
		testSlice("svc", ep(epHere, "here", "zone=z2"), ep(epThere, "zone=z1")))
	sp := w.find("svc", plan.IPv4)
	wantAddrs(t, "cluster pool", sp.Pools[plan.ClusterPool], epThere)
	wantAddrs(t, "local pool", sp.Pools[plan.LocalPool], epHere)
}

// A change to the Node object's zone changes the plan, but other changes to the Node object do not.
func TestZoneOfNodeObject(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc"),
		testSlice("svc", ep("10.2.0.1", "zone=z1"), ep("10.2.0.2", "zone=z2")))
	wantAddrs(t, "without a Node", w.find("svc", plan.IPv4).Pools[0], "10.2.0.1", "10.2.0.2")
	w.put(&source.Node{Name: hostName, Zone: "z2"})
	wantAddrs(t, "zone z2", w.find("svc", plan.IPv4).Pools[0], "10.2.0.2")
	before := w.find("svc", plan.IPv4)
	w.put(&source.Node{Name: hostName, Zone: "z2", Leaving: true})
	if w.find("svc", plan.IPv4) != before {
		t.Error("a change of the Node object that does not matter changed the plan")
	}
	w.remove(&source.Node{Name: hostName})
	wantAddrs(t, "Node deleted", w.find("svc", plan.IPv4).Pools[0], "10.2.0.1", "10.2.0.2")
}

// An endpoint in two slices counts once. The last entry that is not terminating takes precedence, or the last entry if
// all are terminating.
func TestDuplicateEndpoints(t *testing.T) {
	second := testSlice("svc", ep("10.1.0.1", "here"), ep("10.1.0.2", "stopping"), ep("10.1.0.3", "here", "stopping"))
	second.Name = "svc-2"
	w := newWorld(t, testOptions(), testService("svc"),
		testSlice("svc", ep("10.1.0.1"), ep("10.1.0.2"), ep("10.1.0.3", "here")), second)
	sp := w.find("svc", plan.IPv4)
	want := []plan.Endpoint{
		{Addr: netip.MustParseAddrPort("10.1.0.1:8080"), Local: true}, // both entries are ready
		{Addr: netip.MustParseAddrPort("10.1.0.2:8080")},
		{Addr: netip.MustParseAddrPort("10.1.0.3:8080"), Local: true},
	}
	if !slices.Equal(sp.Pools[plan.ClusterPool], want) {
		t.Errorf("got %v, want %v", sp.Pools[plan.ClusterPool], want)
	}
	if len(sp.Serving) != 3 {
		t.Errorf("serving: %v", sp.Serving)
	}
}

// Each endpoint gets the first weight that matches it. A new weight changes the ServicePort.
func TestEndpointWeights(t *testing.T) {
	slice := testSlice("svc", ep("10.1.0.1", "here"), ep("10.1.0.2"), ep("10.1.0.3", "here"), ep("10.2.0.1"))
	weights := func(of ...source.Weight) func(*source.Service) { return func(s *source.Service) { s.Weights = of } }
	here := slice.Endpoints[0].NodeName
	w := newWorld(t, testOptions(), testService("svc", weights(
		source.Weight{Range: netip.MustParsePrefix("10.1.0.3/32"), Weight: 9}, source.Weight{Node: here, Weight: 3},
		source.Weight{Range: netip.MustParsePrefix("10.1.0.0/16"), Weight: 2},
	)), slice)
	sp := w.find("svc", plan.IPv4)
	var got []uint16
	for _, e := range sp.Pools[plan.ClusterPool] {
		got = append(got, e.Weight)
	}
	if want := []uint16{3, 2, 9, 0}; !slices.Equal(got, want) {
		t.Errorf("weights %v, want %v", got, want)
	}
	other := newWorld(t, testOptions(), testService("svc"), slice).find("svc", plan.IPv4)
	if other.Digest == sp.Digest {
		t.Error("the digest is the same without weights")
	}
}

// Ports match by name and protocol. Each slice specifies its own port number, so the number may differ between slices.
func TestPortsMatchByNameAndProtocol(t *testing.T) {
	svc := testService("svc", func(s *source.Service) {
		s.Ports = []source.ServicePort{
			{Name: "dns", Protocol: plan.UDP, Port: 53}, {Name: "dns-tcp", Protocol: plan.TCP, Port: 53}, {Name: "web", Protocol: plan.TCP, Port: 80},
		}
	})
	one, two := testSlice("svc", ep("10.1.0.1")), testSlice("svc", ep("10.1.0.2"))
	two.Name = "svc-2"
	one.Ports = []source.SlicePort{
		{Name: "dns", Protocol: plan.UDP, Port: 5353},
		{Name: "dns-tcp", Protocol: plan.TCP, Port: 5353},
		{Name: "web", Protocol: plan.UDP, Port: 1},
	}
	two.Ports = []source.SlicePort{{Name: "dns", Protocol: plan.UDP, Port: 1053}}
	w := newWorld(t, testOptions(), svc, one, two)
	for port, want := range map[source.ServicePort][]string{
		svc.Ports[0]: {"10.1.0.1:5353", "10.1.0.2:1053"}, svc.Ports[1]: {"10.1.0.1:5353"}, svc.Ports[2]: {},
	} {
		sp := w.plan.Find(plan.ServicePortName{Namespace: "ns", Name: "svc", Port: port.Name, Protocol: port.Protocol},
			plan.IPv4)
		got := []string{}
		for _, e := range sp.Pools[plan.ClusterPool] {
			got = append(got, e.Addr.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", port.Name, got, want)
		}
	}
}

func TestSliceFamilies(t *testing.T) {
	svc := testService("svc", func(s *source.Service) { s.ClusterIPs = ips("10.96.0.10", "fd00:96::10") })
	six := testSlice("svc", ep("fd00:2::1"))
	six.Name = "svc-6"
	w := newWorld(t, testOptions(), svc, testSlice("svc", ep("10.2.0.1")), six)
	wantAddrs(t, "IPv4", w.find("svc", plan.IPv4).Pools[0], "10.2.0.1")
	wantAddrs(t, "IPv6", w.find("svc", plan.IPv6).Pools[0], "fd00:2::1")
}

// Serving contains all endpoints that may have connections, whether or not a pool contains them.
func TestServing(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc"), testSlice("svc",
		ep("10.2.0.4"), ep("10.2.0.1", "stopping"), ep("10.2.0.2", "gone"), ep("10.2.0.3", "unready")))
	sp := w.find("svc", plan.IPv4)
	wantAddrs(t, "serving", sp.Serving, "10.2.0.1", "10.2.0.4")
	wantAddrs(t, "pool", sp.Pools[plan.ClusterPool], "10.2.0.4")
	w = newWorld(t, testOptions(), testService("svc"), testSlice("svc", ep("10.2.0.4"), ep("10.2.0.1")))
	if sp = w.find("svc", plan.IPv4); &sp.Serving[0] != &sp.Pools[plan.ClusterPool][0] {
		t.Error("there are two lists of the same")
	}
}

func TestUnusedPoolsAreNil(t *testing.T) {
	internal := testService("svc", func(s *source.Service) { s.InternalLocal = true })
	w := newWorld(t, testOptions(), internal, testSlice("svc", ep(epHere, "here"), ep(epThere)))
	if sp := w.find("svc", plan.IPv4); sp.Pools[plan.ClusterPool] != nil || len(sp.Pools[plan.LocalPool]) != 1 {
		t.Errorf("internal Local without external frontends: %v", sp.Pools)
	}
	w.put(testService("svc"))
	if sp := w.find("svc", plan.IPv4); len(sp.Pools[plan.ClusterPool]) != 2 || sp.Pools[plan.LocalPool] != nil {
		t.Errorf("Cluster: %v", sp.Pools)
	}
}
