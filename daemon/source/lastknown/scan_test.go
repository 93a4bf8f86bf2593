package lastknown

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/plan"
)

func newScanner() *scanner { return &scanner{converter: &convert.Converter{}} }

// full are objects with something in every field that the scanner reads, and with nothing in most.
func full() []source.Object {
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	at := time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)
	return []source.Object{
		&source.Service{
			Namespace: "ns", Name: "full", UID: "b7a5c8a2-0000-4000-8000-000000000000", Created: at,
			ClusterIPs: addrs, ExternalIPs: addrs, LoadBalancerIPs: addrs,
			SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")},
			Ports:        []source.ServicePort{{Name: "http", Protocol: plan.TCP, Port: 80, NodePort: 30080}, {Name: "dns", Protocol: plan.UDP, Port: 53}},
			Affinity:     3 * time.Hour, InternalLocal: true, ExternalLocal: true, HealthCheckNodePort: 65535, LongLived: true, Scheduler: "wrr",
			Weights: []source.Weight{{Node: "node-1", Weight: 3}, {Range: netip.MustParsePrefix("192.0.2.0/24"), Weight: 65535}},
		},
		&source.EndpointSlice{
			Namespace: "ns", Name: "full-x1", Service: "full", Family: plan.IPv4, Triggered: at,
			Ports: []source.SlicePort{{Name: "http", Protocol: plan.TCP, Port: 8080}, {Protocol: plan.SCTP, Port: 1}},
			Endpoints: []source.Endpoint{
				{Addr: addrs[0], Ready: true, Serving: true, NodeName: "node-1", Hints: &source.Hints{ForNodes: []string{"node-1", "node-2"}, ForZones: []string{"a"}}},
				{Addr: netip.MustParseAddr("192.0.2.2"), Terminating: true, Hints: &source.Hints{ForNodes: []string{"node-1", "node-2"}, ForZones: []string{"a"}}},
				{Addr: netip.MustParseAddr("192.0.2.3")},
				{Addr: netip.MustParseAddr("192.0.2.4"), Hints: &source.Hints{ForZones: []string{"b"}}},
			},
		},
		&source.Service{Namespace: "ns", Name: "empty"},
		&source.EndpointSlice{Namespace: "ns", Name: "empty", Service: "empty", Family: plan.IPv6},
	}
}

// What is written is read by the scanner, or a start takes three times as long; a field that it does not know would show here.
func TestTheScannerReadsWhatIsWritten(t *testing.T) {
	for _, obj := range full() {
		if v := reflect.ValueOf(obj).Elem(); obj.Key().Name != "empty" {
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Faults" && name != "NoSources" && name != "Manifest" {
					t.Errorf("%s of %s is empty in this test", name, obj.Key())
				}
			}
		}
		line := lineOf(t, obj)
		got, ok := newScanner().object(line)
		if !ok || !reflect.DeepEqual(got, obj) {
			t.Errorf("%s\nread %v as %+v", line, ok, got)
		}
	}
}

func lineOf(t *testing.T, obj source.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := appendLine(&b, recordOf(source.Key{}, obj)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An endpoint that has the hints of the one before has no list of its own.
func TestHintsAreShared(t *testing.T) {
	line := lineOf(t, full()[1])
	got, _ := newScanner().object(line)
	e := got.(*source.EndpointSlice).Endpoints
	if e[0].Hints != e[1].Hints || e[2].Hints != nil || e[3].Hints == e[0].Hints {
		t.Errorf("%+v", e)
	}
}

// FuzzScanner: what the scanner takes is JSON, and means to it what it means to encoding/json.
func FuzzScanner(f *testing.F) {
	lines, _ := encode(f, append(full(), everyKind()...)...)
	for line := range bytes.Lines(lines) {
		f.Add(line)
	}
	for _, text := range []string{
		`{"service":{}}`, `{"service":{"ports":[]}}`, `{"service":{"ports":null}}`, `{"service":{"clusterIPs":[""]}}`, `{"service":{"name":"a\u0062"}}`,
		`{"service":{"name":"a","name":"b"}}`, `{"service":{"Name":"a"}}`, `{"service":{"affinity":01}}`, `{"service":{"affinity":-1}}`,
		`{"service":{"affinity":9223372036854775808}}`, `{"service":{"healthCheckNodePort":65536}}`, `{"service":{"noSources":"BAY="}}`, `{"service":{}} `,
		`{"service":{"name":"é"}}`, `{"service":{"created":"2026-02-30T00:00:00Z"}}`, `{"service":{"created":"2026-02-03T04:05:06,5+24:00"}}`, `{"service":{"created":2026-02-03T04:05:06,5+24:00"}}`,
		`{"endpointSlice":{"endpoints":[{"addr":"fe80::1%eth0"},]}}`, `{"endpointSlice":{"family":300}}`, `{"endpointSlice":{"ports":[{"port":8e1}]}}`,
		`{"service":{}}{"service":{}}`, `{"service":{},"endpointSlice":{}}`, `{,"service":{}}`, `{"service":{,"name":"a"}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, ok := newScanner().object(line)
		if !ok {
			return
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%q: taken, but %v", line, err)
		}
		if want := r.object(); !reflect.DeepEqual(got, want) || len(bytes.TrimSpace(line)) < len(line)-1 {
			t.Fatalf("%q:\n%+v, not\n%+v", line, got, want)
		}
	})
}

// A snapshot whose lines are in another order, or that has an object twice, is read all the same: the last one counts.
func TestOrderOfLines(t *testing.T) {
	line := func(name string, port uint16) []byte { return lineOf(t, aService(name, port)) }
	lines := bytes.Join([][]byte{line("b", 1), line("d", 1), line("c", 1), line("b", 2), line("a", 1), line("e", 1), line("c", 3)}, nil)
	journal := slices.Concat(line("b", 4), []byte(`{"deleted":{"kind":"Service","namespace":"ns","name":"d"}}`+"\n"), line("f", 1),
		[]byte(`{"deleted":{"kind":"Service","namespace":"ns","name":"f"}}`+"\n"), line("f", 5))
	st, err := parse(seal(lines, journal))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, obj := range st.objects {
		s := obj.(*source.Service)
		got = append(got, s.Name+string(rune('0'+s.Ports[0].Port)))
	}
	if want := []string{"a1", "b4", "c3", "e1", "f5"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
