package convert

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/proxiers/plan"
)

func slice(t *testing.T, rest string) *discoveryv1.EndpointSlice {
	return parse[discoveryv1.EndpointSlice](t,
		"metadata: {namespace: ns, name: svc-1, labels: {kubernetes.io/service-name: svc}}\n"+rest)
}

func TestEndpointSliceWithEveryField(t *testing.T) {
	in := slice(t, `
addressType: IPv4
ports:
- {name: http, protocol: TCP, port: 8080}
- {name: "", protocol: UDP, port: 53}
endpoints:
- addresses: [10.1.0.1, 10.9.9.9]
- addresses: [010.1.0.2]
  conditions: {ready: false, serving: true, terminating: true}
  nodeName: node-1
  hints: {forZones: [{name: Zone_a}], forNodes: [{name: node-1}]}
- addresses: [10.1.0.3]
  conditions: {ready: false, serving: false}
`)
	in.Annotations = map[string]string{api.AnnotationLastChange: "2026-01-02T03:04:05.5+01:00"}
	want := &source.EndpointSlice{
		Namespace: "ns", Name: "svc-1", Service: "svc", Family: plan.IPv4,
		Ports: []source.SlicePort{{Name: "http", Protocol: plan.TCP, Port: 8080}, {Protocol: plan.UDP, Port: 53}},
		Endpoints: []source.Endpoint{
			{Addr: netip.MustParseAddr("10.1.0.1"), Ready: true, Serving: true},
			{Addr: netip.MustParseAddr("10.1.0.2"), Serving: true, Terminating: true, NodeName: "node-1", Hints: &source.Hints{ForNodes: []string{"node-1"}, ForZones: []string{"Zone_a"}}},
			{Addr: netip.MustParseAddr("10.1.0.3")},
		},
		TriggerTime: time.Date(2026, 1, 2, 2, 4, 5, 5e8, time.UTC),
	}
	got, ok := new(Converter).EndpointSlice(in)
	if !ok {
		t.Fatal("the slice is not ours")
	}
	if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
		t.Errorf("converted EndpointSlice (-want +got):\n%s", diff)
	}
	if err := Validate(got); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// The last-known state is JSON, and time.Time.MarshalJSON rejects a year above 9999.
func TestYearBeyondJSONIsIgnored(t *testing.T) {
	in := slice(t, "addressType: IPv4")
	in.Annotations = map[string]string{api.AnnotationLastChange: "9999-12-31T23:59:59-01:00"}
	if got, ok := new(Converter).EndpointSlice(in); !ok || !got.TriggerTime.IsZero() {
		t.Errorf("trigger time %s", got.TriggerTime)
	}
}

func TestUnproxiedSlicesAreSkipped(t *testing.T) {
	headless := slice(t, "addressType: IPv4")
	headless.Labels[api.LabelHeadless] = ""
	for name, in := range map[string]*discoveryv1.EndpointSlice{
		"headless": headless,
		"FQDN":     slice(t, "addressType: FQDN"),
	} {
		if got, ok := new(Converter).EndpointSlice(in); ok {
			t.Errorf("%s: converted to %+v", name, got)
		}
	}
}

func TestSliceFaultKeepsValidFields(t *testing.T) {
	const good = "endpoints:\n- addresses: [10.1.0.1]\n"
	const port = "addressType: IPv4\nports: [{name: a, port: 80}]\n"
	for name, c := range map[string]struct{ rest, field string }{
		"port 0":        {"addressType: IPv4\nports: [{name: a, port: 80}, {name: b, port: 0}]\n" + good, "ports[1].port"},
		"port 65536":    {"addressType: IPv4\nports: [{name: a, port: 80}, {name: b, port: 65536}]\n" + good, "ports[1].port"},
		"no port":       {"addressType: IPv4\nports: [{name: a, port: 80}, {name: b}]\n" + good, "ports[1].port"},
		"no port name":  {"addressType: IPv4\nports: [{name: a, port: 80}, {port: 81}]\n" + good, "ports[1].name"},
		"port name":     {"addressType: IPv4\nports: [{name: a, port: 80}, {name: B, port: 81}]\n" + good, "ports[1].name"},
		"repeated name": {"addressType: IPv4\nports: [{name: a, port: 80}, {name: a, port: 81}]\n" + good, "ports[1].name"},
		"protocol":      {"addressType: IPv4\nports: [{name: a, port: 80}, {name: b, port: 81, protocol: tcp}]\n" + good, "ports[1].protocol"},
		"no address":    {port + good + "- addresses: []", "endpoints[1].addresses"},
		"no IP":         {port + good + "- addresses: [web.example]", "endpoints[1].addresses[0]"},
		"loopback":      {port + good + "- addresses: [127.0.0.2]", "endpoints[1].addresses[0]"},
		"link-local":    {port + good + "- addresses: [169.254.169.254]", "endpoints[1].addresses[0]"},
		"multicast":     {port + good + "- addresses: [224.0.0.1]", "endpoints[1].addresses[0]"},
		"unspecified":   {port + good + "- addresses: [0.0.0.0]", "endpoints[1].addresses[0]"},
		"IPv4-mapped":   {port + good + `- addresses: ["::ffff:10.1.0.2"]`, "endpoints[1].addresses[0]"},
		"family":        {port + good + `- addresses: ["2001:db8::1"]`, "endpoints[1].addresses[0]"},
		"duplicate":     {port + good + `- addresses: [10.1.0.1]`, "endpoints[1].addresses[0]"},
		"node name":     {port + good + "- addresses: [10.1.0.2]\n  nodeName: Node_1", "endpoints[1].nodeName"},
		"zone hint":     {port + good + "- addresses: [10.1.0.2]\n  hints: {forZones: [{name: -a}]}", "endpoints[1].hints.forZones[0].name"},
		"node hint":     {port + good + "- addresses: [10.1.0.2]\n  hints: {forNodes: [{name: A}]}", "endpoints[1].hints.forNodes[0].name"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := new(Converter).EndpointSlice(slice(t, c.rest))
			if !ok {
				t.Fatal("the slice is not ours")
			}
			if diff := cmp.Diff([]string{c.field}, fields(got.Faults)); diff != "" {
				t.Errorf("faulty fields (-want +got):\n%s%v", diff, got.Faults)
			}
			if len(got.Ports) != 1 || len(got.Endpoints) == 0 || got.Endpoints[0].Addr.String() != "10.1.0.1" {
				t.Errorf("the good parts are gone: %+v", got)
			}
			if err := Validate(got); err != nil {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

func TestSliceWithoutServiceOrFamilyHasOnlyFault(t *testing.T) {
	nameless := slice(t, "addressType: IPv4\nendpoints: [{addresses: [10.1.0.1]}]")
	delete(nameless.Labels, api.LabelServiceName)
	for field, in := range map[string]*discoveryv1.EndpointSlice{
		"metadata.labels[kubernetes.io/service-name]": nameless,
		"addressType": slice(t, "addressType: IPX\nendpoints: [{addresses: [10.1.0.1]}]"),
	} {
		got, ok := new(Converter).EndpointSlice(in)
		if !ok || len(got.Endpoints) != 0 || Validate(got) == nil {
			t.Errorf("%s: got %+v, %v", field, got, ok)
			continue
		}
		if diff := cmp.Diff([]string{field}, fields(got.Faults)); diff != "" {
			t.Error(diff)
		}
	}
}

// If two endpoints have the same address, the converter uses the endpoint that is not terminating, regardless of their
// order (SEMANTICS row 8). The converter adds no fault for the terminating endpoint.
func TestReusedPodAddressIsNoFault(t *testing.T) {
	old, fresh := "- addresses: [10.1.0.1]\n  conditions: {ready: false, serving: true, terminating: true}\n",
		"- addresses: [10.1.0.1]\n"
	for _, order := range []string{old + fresh, fresh + old} {
		got, _ := new(Converter).EndpointSlice(slice(t, "addressType: IPv4\nendpoints:\n"+order))
		if len(got.Endpoints) != 1 || !got.Endpoints[0].Ready || got.Endpoints[0].Terminating || got.Faults != nil {
			t.Errorf("got %+v of:\n%s", got, order)
		}
	}
}

func TestObjectFaultsAreBounded(t *testing.T) {
	got, _ := new(Converter).EndpointSlice(slice(t,
		"addressType: IPv4\nendpoints:\n"+strings.Repeat("- addresses: [x]\n", 1200)))
	last := got.Faults[len(got.Faults)-1].Message
	if len(got.Faults) != 20+1 || last != "981 more faults" {
		t.Errorf("%d faults, the last is %q", len(got.Faults), last)
	}
}
