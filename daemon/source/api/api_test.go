package api_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "sigs.k8s.io/json"

	"edgeway/daemon/source/api"
)

// message is an object or a list, of k8s.io/api or of this package.
type message interface {
	Reset()
	Unmarshal(data []byte) error
}

// pair is what Kubernetes has, and what is read of it here.
type pair struct{ kube, ours message }

func pairs() []pair {
	return []pair{
		{&corev1.Service{}, &api.Service{}},
		{&corev1.ServiceList{}, &api.ServiceList{}},
		{&discoveryv1.EndpointSlice{}, &api.EndpointSlice{}},
		{&discoveryv1.EndpointSliceList{}, &api.EndpointSliceList{}},
		{&corev1.Node{}, &api.Node{}},
		{&corev1.NodeList{}, &api.NodeList{}},
		{&networkingv1.ServiceCIDR{}, &api.ServiceCIDR{}},
		{&networkingv1.ServiceCIDRList{}, &api.ServiceCIDRList{}},
	}
}

// filled gives random objects of Kubernetes, as bytes of protobuf and of JSON.
func filled(tb testing.TB, into message, seed int64) (proto, text []byte) {
	tb.Helper()
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(runtime.NewScheme())).NilChance(.2).NumElements(0, 3)
	fill.Fill(into)
	if o, ok := into.(metav1.Object); ok {
		for i, key := range meanings() {
			if seed>>i&1 == 1 {
				o.SetLabels(with(o.GetLabels(), key, "l"+key))
				o.SetAnnotations(with(o.GetAnnotations(), key, "a"+key))
			}
		}
	}
	proto, err := into.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	if text, err = json.Marshal(into); err != nil {
		tb.Fatal(err)
	}
	return proto, text
}

func with(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	maps.Copy(out, m)
	return out
}

// meanings are the keys of labels and annotations that are read.
func meanings() []string {
	return []string{
		"kubernetes.io/service-name", "service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless", "topology.kubernetes.io/zone",
		"endpoints.kubernetes.io/last-change-trigger-time", "edgeway.io/traffic-hint", "edgeway.io/ipvs-scheduler", "edgeway.io/ipvs-weights", "k8s.io/initial-events-end",
	}
}

// read leaves of metadata what is read of protobuf.
func read(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, key := range meanings() {
		if v, ok := m.Labels[key]; ok {
			out.Labels = with(out.Labels, key, v)
		}
		if v, ok := m.Annotations[key]; ok {
			out.Annotations = with(out.Annotations, key, v)
		}
	}
	return out
}

// difference gives the path of a field that is not what Kubernetes' own types have, of those with a tag; empty: there is none.
// Those that are there are counted.
func difference(ours, kube reflect.Value, tag, path string, seen map[string]int) string {
	if m, ok := kube.Interface().(metav1.ObjectMeta); ok && tag == "protobuf" {
		kube = reflect.ValueOf(read(m))
	}
	if !kube.IsZero() {
		seen[path]++
	}
	different := false
	switch {
	case ours.Kind() == reflect.Struct && ours.Type() != kube.Type():
		for f := range ours.Type().Fields() {
			if f.Tag.Get(tag) == "" || f.Tag.Get("kep") != "" || f.Type == reflect.TypeFor[api.Unread]() {
				continue
			}
			if d := difference(ours.FieldByIndex(f.Index), kube.FieldByName(f.Name), tag, path+"."+f.Name, seen); d != "" {
				return d
			}
		}
	case ours.Kind() == reflect.Pointer:
		different = ours.IsNil() != kube.IsNil()
		if !ours.IsNil() && !different {
			return difference(ours.Elem(), kube.Elem(), tag, path, seen)
		}
	case ours.Kind() == reflect.Slice && ours.Type() != kube.Type():
		different = ours.Len() != kube.Len()
		for i := 0; i < ours.Len() && !different; i++ {
			if d := difference(ours.Index(i), kube.Index(i), tag, path, seen); d != "" {
				return d
			}
		}
	default:
		different = !reflect.DeepEqual(ours.Interface(), kube.Convert(ours.Type()).Interface())
	}
	if different {
		return path
	}
	return ""
}

// The types have the same fields, with the same names and numbers.
func TestTypesAreKubernetes(t *testing.T) {
	for _, p := range pairs() {
		sameType(t, reflect.TypeOf(p.ours), reflect.TypeOf(p.kube), reflect.TypeOf(p.ours).String())
	}
}

func sameType(t *testing.T, ours, kube reflect.Type, path string) {
	t.Helper()
	for ours.Kind() == kube.Kind() && (ours.Kind() == reflect.Pointer || ours.Kind() == reflect.Slice) {
		ours, kube = ours.Elem(), kube.Elem()
	}
	if ours == reflect.TypeFor[api.Unread]() || ours == kube {
		return
	}
	if ours.Kind() != kube.Kind() {
		t.Errorf("%s is of kind %s, not %s", path, ours.Kind(), kube.Kind())
		return
	}
	if ours.Kind() != reflect.Struct {
		return
	}
	for f := range kube.Fields() {
		if _, ok := ours.FieldByName(f.Name); !ok {
			t.Errorf("%s has no field %s", path, f.Name)
		}
	}
	for f := range ours.Fields() {
		want, ok := kube.FieldByName(f.Name)
		if kep := f.Tag.Get("kep"); kep != "" {
			if ok {
				t.Errorf("%s has a field %s now, of KEP-%s: read it", path, f.Name, kep)
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		wantName, _, _ := strings.Cut(want.Tag.Get("json"), ",")
		number := f.Tag.Get("protobuf")
		if !ok || name != wantName || number != "" && !strings.HasPrefix(want.Tag.Get("protobuf"), number+",") {
			t.Errorf("%s.%s is %q, not %q", path, f.Name, f.Tag, want.Tag)
			continue
		}
		sameType(t, f.Type, want.Type, path+"."+f.Name)
	}
}

// What is read of an API server's answer is what the generated code reads of it, in protobuf and in JSON. Nothing that is read may be left out
// by the test itself.
func TestAnswersAreReadAsKubernetesReadsThem(t *testing.T) {
	for _, p := range pairs() {
		seen := map[string]map[string]int{"protobuf": {}, "json": {}}
		for seed := range int64(200) {
			p.kube.Reset()
			proto, text := filled(t, p.kube, seed)
			compare(t, p, proto, seen["protobuf"])
			p.ours.Reset()
			p.kube.Reset()
			// As apimachinery reads it.
			if err := utiljson.UnmarshalCaseSensitivePreserveInts(text, p.kube); err != nil {
				t.Fatal(err)
			}
			if err := utiljson.UnmarshalCaseSensitivePreserveInts(text, p.ours); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if d := difference(reflect.ValueOf(p.ours), reflect.ValueOf(p.kube), "json", "", seen["json"]); d != "" {
				t.Fatalf("%T, seed %d: JSON gives another %s", p.kube, seed, d)
			}
		}
		for tag, seen := range seen {
			unseen(t, reflect.TypeOf(p.ours), tag, "", seen)
		}
	}
}

// unseen finds fields that never had a value.
func unseen(t *testing.T, ours reflect.Type, tag, path string, seen map[string]int) {
	t.Helper()
	for ours.Kind() == reflect.Pointer || ours.Kind() == reflect.Slice {
		ours = ours.Elem()
	}
	if seen[path] == 0 && ours != reflect.TypeFor[metav1.Time]() { // the filler makes none of a pointer
		t.Errorf("%s%s never had a value in %s", ours, path, tag)
	}
	if ours.Kind() != reflect.Struct || strings.HasPrefix(ours.PkgPath(), "k8s.io/") {
		return
	}
	for f := range ours.Fields() {
		if f.Tag.Get(tag) != "" && f.Tag.Get("kep") == "" && f.Type != reflect.TypeFor[metav1.TypeMeta]() && f.Type != reflect.TypeFor[api.Unread]() {
			unseen(t, f.Type, tag, path+"."+f.Name, seen)
		}
	}
}

// compare reads protobuf in both ways. It reports what each said of it.
func compare(t *testing.T, p pair, raw []byte, seen map[string]int) (ours, kube error) {
	t.Helper()
	p.ours.Reset()
	p.kube.Reset()
	ours, kube = p.ours.Unmarshal(raw), p.kube.Unmarshal(raw)
	if ours == nil && kube == nil {
		if d := difference(reflect.ValueOf(p.ours), reflect.ValueOf(p.kube), "protobuf", "", seen); d != "" {
			t.Fatalf("%x: another %s of a %T", raw, d, p.kube)
		}
	}
	return ours, kube
}

// unknown are fields that no version has, of each kind that protobuf knows: a group with a number in it among them.
var unknown = [][]byte{
	{0xf8, 0x7f, 0x96, 0x01},
	{0xf9, 0x7f, 1, 2, 3, 4, 5, 6, 7, 8},
	{0xfa, 0x7f, 2, 0xff, 0xff},
	{0xfb, 0x7f, 0x08, 0x01, 0xfc, 0x7f},
	{0xfd, 0x7f, 1, 2, 3, 4},
}

func TestUnknownFieldsArePassedOver(t *testing.T) {
	for _, p := range pairs() {
		raw, _ := filled(t, p.kube, 7)
		for _, field := range unknown {
			for _, raw := range [][]byte{append(bytes.Clone(raw), field...), append(bytes.Clone(field), raw...)} {
				if ours, kube := compare(t, p, raw, map[string]int{}); ours != nil || kube != nil {
					t.Errorf("%T and the field %x: %v, and in Kubernetes %v", p.kube, field, ours, kube)
				}
			}
		}
	}
}

// What is cut off is refused as there, and no byte does harm.
func TestDamagedAnswers(t *testing.T) {
	for _, p := range pairs() {
		raw, _ := filled(t, p.kube, 3)
		for n := range raw[:min(len(raw), 1500)] {
			if ours, kube := compare(t, p, raw[:n], map[string]int{}); (ours == nil) != (kube == nil) {
				t.Fatalf("%T, %d of %d bytes: %v, and in Kubernetes %v", p.kube, n, len(raw), ours, kube)
			}
			for _, flip := range []byte{1, 0x80, 0xff, 7} {
				damaged := bytes.Clone(raw)
				damaged[n] ^= flip
				compare(t, p, damaged, map[string]int{})
			}
		}
	}
}

// FuzzProtobuf: bytes that are read here come to what they are to k8s.io/api, unless that refuses them for what is not read here.
func FuzzProtobuf(f *testing.F) {
	for i, p := range pairs() {
		raw, _ := filled(f, p.kube, 1)
		f.Add(byte(i), raw)
		f.Add(byte(i), append(raw[:len(raw)/2:len(raw)/2], unknown[3]...))
	}
	f.Add(byte(0), []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add(byte(1), bytes.Repeat([]byte{0x12, 0x00}, 1000))
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		compare(t, pairs()[int(which)%len(pairs())], raw, map[string]int{})
	})
}

func BenchmarkEndpointSlice(b *testing.B) {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "a-x7k2p", ResourceVersion: "17", Labels: map[string]string{"kubernetes.io/service-name": "a", "app": "a"}},
		AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))}},
	}
	for range 5 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, NodeName: new("n"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "a-5c9f7-x7k2p"},
		})
	}
	raw, err := s.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	for name, m := range map[string]message{"ours": &api.EndpointSlice{}, "kube": &discoveryv1.EndpointSlice{}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Reset()
				if err := m.Unmarshal(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
