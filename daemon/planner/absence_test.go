package planner

import (
	"net/netip"
	"strings"
	"testing"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func TestAbsentReasons(t *testing.T) {
	named := func(name string, protocol plan.Protocol) *source.EndpointSlice {
		s := testSlice("web", ep(epThere))
		s.Ports[0].Name, s.Ports[0].Protocol = name, protocol
		return s
	}
	without := testSlice("web", ep(epThere))
	without.Ports = nil
	for name, c := range map[string]struct {
		slices    []*source.EndpointSlice
		port      string
		seen, fix string // seen and fix are substrings, or "" if there is an endpoint
	}{
		"no slice":               {nil, "", "no EndpointSlice", "kubernetes.io/service-name: web"},
		"another family":         {[]*source.EndpointSlice{testSlice("web", ep("fd00:1::1"))}, "", "no EndpointSlice of addressType IPv4, only of IPv6", "IPv4"},
		"another name":           {[]*source.EndpointSlice{named("http", plan.TCP), named("metrics", plan.TCP)}, "web", `no port "web"/TCP, only "http"/TCP, "metrics"/TCP`, "Service's port name"},
		"a name for none":        {[]*source.EndpointSlice{named("http", plan.TCP)}, "", `no port TCP without a name, only "http"/TCP`, "Service's port name"},
		"another protocol":       {[]*source.EndpointSlice{named("", plan.UDP)}, "", "no port TCP without a name, only UDP without a name", "protocol"},
		"no port":                {[]*source.EndpointSlice{without}, "", "EndpointSlices have no ports", "Service's port name"},
		"empty":                  {[]*source.EndpointSlice{testSlice("web")}, "", "the EndpointSlice web-1 has no endpoints", "selector"},
		"not ready":              {[]*source.EndpointSlice{testSlice("web", ep("10.1.0.2", "unready"), ep("10.1.0.1", "gone"))}, "", "no endpoint is ready: 10.1.0.1, 10.1.0.2", "-n ns describe pods"},
		"many not ready":         {[]*source.EndpointSlice{testSlice("web", ep("10.1.0.1", "unready"), ep("10.1.0.2", "unready"), ep("10.1.0.3", "unready"), ep("10.1.0.4", "unready"))}, "", "10.1.0.3 and 1 more", "conditions.ready"},
		"one stops, but serves":  {[]*source.EndpointSlice{testSlice("web", ep("10.1.0.1", "unready"), ep("10.1.0.2", "stopping"))}, "", "", ""},
		"ready":                  {[]*source.EndpointSlice{testSlice("web", ep("10.1.0.1"))}, "", "", ""},
		"ready in another slice": {[]*source.EndpointSlice{testSlice("web"), testSlice("web", ep("10.1.0.1"))}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			svc := &tracker.Service{Spec: testService("web"), Slices: c.slices}
			got, absent := NoEndpointFault(svc, plan.ServicePortName{
				Namespace: "ns", Name: "web", Port: c.port,
				Protocol: plan.TCP,
			}, plan.IPv4)
			if absent != (c.seen != "") || !strings.Contains(got.Message, c.seen) || !strings.Contains(got.Fix, c.fix) {
				t.Errorf("got %t, %+v", absent, got)
			}
		})
	}
}

// The plan rejects connections to a port if and only if NoEndpointFault returns a fault.
func TestAbsentAgreesWithPlan(t *testing.T) {
	for name, slices := range map[string][]source.Object{
		"none": nil, "ready": {testSlice("web", ep(epThere))}, "not ready": {testSlice("web", ep(epThere, "unready"))},
		"stopping": {testSlice("web", ep(epThere, "stopping"))}, "gone": {testSlice("web", ep(epThere, "gone"))},
	} {
		w := newWorld(t, testOptions(), append(slices, testService("web"))...)
		snap, _ := w.tr.Snapshot()
		sp := w.plan.Services[0]
		_, absent := NoEndpointFault(snap.Services[0], sp.Name, sp.Family)
		if rejected := w.plan.Decide(packetTo("host", "ClusterIP")).Verdict == plan.Reject; rejected != absent {
			t.Errorf("%s: rejected %t, absent %t", name, rejected, absent)
		}
	}
}

func TestUnservedPorts(t *testing.T) {
	two := testService("web")
	two.Ports = append(two.Ports, source.ServicePort{Name: "metrics", Protocol: plan.TCP, Port: 9000})
	for name, c := range map[string]struct {
		endpoint source.Endpoint
		want     string // "" if there is no fault
	}{
		"ready":             {ep(epThere), "Service ns/web: spec.ports[1]: the Service's EndpointSlices have no port \"metrics\"/TCP, only TCP without a name"},
		"refused":           {ep("10.9.0.1"), "Service ns/web: spec.ports[0]: Edgeway refuses its endpoints"},
		"of another family": {ep("fd00:1::1"), "Service ns/web: spec.ports[0]: the Service has no EndpointSlice of addressType IPv4, only of IPv6"},
	} {
		opts := testOptions()
		opts.Proxy.DenyEndpoints.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
		w := newWorld(t, opts, two, testSlice("web", c.endpoint))
		snap, _ := w.tr.Snapshot()
		got := UnservedPortFaults(snap.Services[0], w.plan)
		if len(got) == 0 || got[0].String() != c.want || got[0].ID != NoEndpointID || got[0].Severity != fault.Notice {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestUnservedPortReasonPerFamily(t *testing.T) {
	svc := testService("web")
	svc.ClusterIPs = append(svc.ClusterIPs, netip.MustParseAddr("fd00:96::10"))
	unready := testSlice("web", source.Endpoint{Addr: netip.MustParseAddr("fd00:1::1")})
	for name, c := range map[string]struct {
		slices []*source.EndpointSlice
		want   string
	}{
		"different reasons": {
			[]*source.EndpointSlice{unready},
			"IPv4: the Service has no EndpointSlice of addressType IPv4, only of IPv6; IPv6: no endpoint is ready: fd00:1::1",
		},
		"the same reason": {nil, "the Service has no EndpointSlice"},
	} {
		objects := []source.Object{svc}
		for _, s := range c.slices {
			objects = append(objects, s)
		}
		w := newWorld(t, testOptions(), objects...)
		snap, _ := w.tr.Snapshot()
		if got := UnservedPortFaults(snap.Services[0], w.plan); len(got) != 1 || got[0].Message != c.want {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}
