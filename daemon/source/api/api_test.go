package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"edgeway/daemon/source/api"
	"edgeway/daemon/source/convert"
	"edgeway/test/hostile"
)

// pair is an object as k8s.io/api has it, and as it is read here.
type pair struct {
	kube interface{ Marshal() ([]byte, error) }
	ours interface{ Unmarshal([]byte) error }
}

func pairs() []pair {
	return []pair{
		{&corev1.Service{}, &api.Service{}},
		{&corev1.ServiceList{}, &api.ServiceList{}},
		{&corev1.Node{}, &api.Node{}},
		{&corev1.NodeList{}, &api.NodeList{}},
		{&discoveryv1.EndpointSlice{}, &api.EndpointSlice{}},
		{&discoveryv1.EndpointSliceList{}, &api.EndpointSliceList{}},
		{&networkingv1.ServiceCIDR{}, &api.ServiceCIDR{}},
		{&networkingv1.ServiceCIDRList{}, &api.ServiceCIDRList{}},
	}
}

// fields gives the paths of a type's fields in JSON, with the kinds of their values.
func fields(t reflect.Type, path string, out map[string]string) map[string]string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	if t == reflect.TypeFor[api.Unread]() || t.Kind() != reflect.Struct || strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery") && path != "" {
		out[path] = t.Kind().String()
		return out
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fields(f.Type, path+".", out)
		case name != "-":
			fields(f.Type, path+"."+name, out)
		}
	}
	return out
}

// A manifest may have every field that there is: one that is not known is a fault.
func TestEveryFieldIsKnown(t *testing.T) {
	for _, p := range pairs() {
		kube, ours := fields(reflect.TypeOf(p.kube), "", map[string]string{}), fields(reflect.TypeOf(p.ours), "", map[string]string{})
		for path, kind := range kube {
			unread := slices.ContainsFunc(slices.Collect(prefixes(path)), func(p string) bool { return ours[p] == "struct" })
			if got := ours[path]; got != kind && !unread {
				t.Errorf("%T: %s is %q, not %q", p.ours, path, got, kind)
			}
		}
		for path := range ours {
			if !slices.ContainsFunc(slices.Collect(keys(kube)), func(k string) bool { return k == path || strings.HasPrefix(k, path+".") }) {
				t.Errorf("%T: there is no %s", p.ours, path)
			}
		}
	}
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// prefixes gives a path, and those of what it is in.
func prefixes(path string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for ; path != ""; path = path[:strings.LastIndexByte(path, '.')] {
			if !yield(path) {
				return
			}
		}
	}
}

// full are objects with something in every field that is read, and in some others.
func full() []any {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	meta := metav1.ObjectMeta{
		Name: "a", Namespace: "ns", UID: "b7a5c8a2", ResourceVersion: "17", Generation: 3, GenerateName: "a-", CreationTimestamp: at, DeletionTimestamp: &at,
		Labels:          map[string]string{api.LabelServiceName: "a", api.LabelZone: "z", "app": "x", api.LabelHeadless: "", api.LabelServiceProxyName: "p"},
		Annotations:     map[string]string{api.AnnotationLastChange: "2026-01-02T03:04:05Z", api.AnnotationTrafficHint: "LongLived", "k8s.io/initial-events-end": "true", "x": "y"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "K", Name: "n"}}, Finalizers: []string{"f"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}},
	}
	return []any{
		&corev1.Service{
			ObjectMeta: meta,
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00::1"}, ExternalIPs: []string{"192.0.2.1", "192.0.2.2"},
				LoadBalancerSourceRanges: []string{"192.0.2.0/24", "2001:db8::/32"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
				Ports: []corev1.ServicePort{
					{Name: "a", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080, TargetPort: intstr.FromString("http"), AppProtocol: new("h2c")},
					{Name: "b", Protocol: corev1.ProtocolUDP, Port: -1},
				},
				SessionAffinity: corev1.ServiceAffinityClientIP, SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(7))}},
				InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
				HealthCheckNodePort: 30123, Selector: map[string]string{"a": "b"}, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack), TrafficDistribution: new("PreferClose"),
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
				{IP: "198.51.100.1", IPMode: new(corev1.LoadBalancerIPModeVIP)}, {Hostname: "a.example"}, {IP: "198.51.100.2", IPMode: new(corev1.LoadBalancerIPModeProxy)},
			}}},
		},
		&discoveryv1.EndpointSlice{
			ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: new("a"), Protocol: new(corev1.ProtocolSCTP), Port: new(int32(80))}, {}},
			Endpoints: []discoveryv1.Endpoint{
				{
					Addresses: []string{"10.1.0.1", "10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(false), Terminating: new(true)},
					NodeName: new("n"), Zone: new("z"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "p"},
					Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}, {Name: "y"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}}},
				},
				{Addresses: []string{"10.1.0.3"}},
			},
		},
		&corev1.Node{
			ObjectMeta: meta,
			Spec:       corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "fd00::/64"}, Taints: []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: "NoSchedule"}, {Key: "x"}}},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "h"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.9"}},
				NodeInfo:  corev1.NodeSystemInfo{KernelVersion: "6.1"}, Images: []corev1.ContainerImage{{Names: []string{"i"}}},
			},
		},
		&networkingv1.ServiceCIDR{ObjectMeta: meta, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12", "fd00:96::/108"}}},
	}
}

// compare reads an object of k8s.io/api as protobuf and as JSON: both must come to the same, of what is read of it.
func compare(t *testing.T, obj any) {
	t.Helper()
	for _, p := range pairs() {
		if reflect.TypeOf(p.kube) != reflect.TypeOf(obj) {
			continue
		}
		proto, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ours.Unmarshal(proto); err != nil {
			t.Fatalf("%+v: %v", obj, err)
		}
		text, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(`\ufffd`)) {
			continue // JSON does not have all strings
		}
		other := reflect.New(reflect.TypeOf(p.ours).Elem()).Interface()
		if err := json.Unmarshal(text, other); err != nil {
			t.Fatal(err)
		}
		got, gotOK := converted(p.ours)
		want, wantOK := converted(other)
		if gotOK != wantOK || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nprotobuf gives %v %+v\nJSON gives %v %+v", text, gotOK, got, wantOK, want)
		}
	}
}

func converted(obj any) (out any, ok bool) {
	var c convert.Converter
	switch o := obj.(type) {
	case *api.Service:
		return c.Service(o)
	case *api.EndpointSlice:
		return c.EndpointSlice(o)
	case *api.Node:
		return c.Node(o), true
	case *api.ServiceCIDR:
		return c.ServiceCIDR(o), true
	}
	return nil, false
}

func TestProtobufIsReadAsJSONIs(t *testing.T) {
	for _, obj := range full() {
		compare(t, obj)
	}
	for seed := range 2000 {
		choices := bytes.Repeat(fmt.Append(nil, seed*7919, seed*104729, seed*31), 30)
		for _, obj := range hostile.NewChoices(choices).Objects() {
			compare(t, obj)
		}
	}
}

// What the reflector reads is there, and what is read leaves nothing out.
func TestProtobufWithEveryField(t *testing.T) {
	objects := full()
	raw, err := objects[0].(*corev1.Service).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var s api.Service
	if err := s.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	in := objects[0].(*corev1.Service)
	if s.ResourceVersion != "17" || s.UID != in.UID || s.Annotations["k8s.io/initial-events-end"] != "true" || !s.DeletionTimestamp.Equal(in.DeletionTimestamp) ||
		len(s.Labels) != 4 || len(s.Annotations) != 3 || s.ManagedFields != nil {
		t.Errorf("%+v", s.ObjectMeta)
	}
	in.Labels, in.Annotations, in.ManagedFields, in.OwnerReferences, in.Finalizers, in.GenerateName, in.Generation = s.Labels, s.Annotations, nil, nil, nil, "", 0
	in.Spec.Selector, in.Spec.IPFamilyPolicy, in.Spec.TrafficDistribution, in.Spec.Ports[0].AppProtocol, in.Spec.Ports[0].TargetPort = nil, nil, nil, nil, intstr.IntOrString{}
	in.Status.LoadBalancer.Ingress[1].Hostname = ""
	got, errGot := json.Marshal(&s)
	want, errWant := json.Marshal(in)
	var a, b map[string]any
	if errGot != nil || errWant != nil || json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	remaining := int64(3)
	list := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "c", RemainingItemCount: &remaining}, Items: []corev1.Service{*in, *in}}
	if raw, err = list.Marshal(); err != nil {
		t.Fatal(err)
	}
	var l api.ServiceList
	if err := l.Unmarshal(raw); err != nil || len(l.Items) != 2 || !reflect.DeepEqual(l.ListMeta, list.ListMeta) || !reflect.DeepEqual(l.Items[1], s) {
		t.Errorf("%v: %+v", err, l)
	}
}

// FuzzProtobuf: bytes that are read here come to what they are to k8s.io/api, unless that refuses them for what is not read here.
func FuzzProtobuf(f *testing.F) {
	for _, obj := range full() {
		for i, p := range pairs() {
			if raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal(); err == nil && reflect.TypeOf(p.kube) == reflect.TypeOf(obj) {
				f.Add(byte(i), raw)
				f.Add(byte(i), raw[:len(raw)/2])
			}
		}
	}
	f.Add(byte(0), []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add(byte(1), bytes.Repeat([]byte{0x12, 0x00}, 1000))
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		p := pairs()[int(which)%len(pairs())]
		kube := p.kube.(interface{ Unmarshal([]byte) error })
		if p.ours.Unmarshal(raw) != nil || kube.Unmarshal(raw) != nil {
			return
		}
		text, err := json.Marshal(p.kube)
		if err != nil {
			return // a time that JSON does not have
		}
		other := reflect.New(reflect.TypeOf(p.ours).Elem()).Interface()
		if json.Unmarshal(text, other) != nil || bytes.Contains(text, []byte(`\ufffd`)) {
			return
		}
		got, gotOK := converted(p.ours)
		want, wantOK := converted(other)
		if gotOK != wantOK || !reflect.DeepEqual(got, want) {
			t.Errorf("%x\nprotobuf gives %v %+v\nJSON gives %v %+v", raw, gotOK, got, wantOK, want)
		}
	})
}

func BenchmarkProtobuf(b *testing.B) {
	raw, err := full()[1].(*discoveryv1.EndpointSlice).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("api", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := new(api.EndpointSlice).Unmarshal(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("k8s.io", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := new(discoveryv1.EndpointSlice).Unmarshal(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
