package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// service is a simulated Service with its EndpointSlice, in the API server or in a manifest.
type service struct {
	name string
	// sliceName is the name of the Service's EndpointSlice. Two Services may exchange their EndpointSlices.
	sliceName string
	// permanent reports whether the Service is never deleted, keeps its port names, and always has a ready endpoint.
	permanent bool
	index     int // the index determines the Service's addresses and ports
	port      int32
	nodePort  int32
	external  bool
	local     bool
	affinity  bool
	endpoints []endpoint
	created   time.Time
	uid       string
}

type endpoint struct {
	index              int
	ready, terminating bool
	here               bool
}

const nodeName = "edge"

// newService returns a random Service. Services with different indexes have different addresses and ports, so they do
// not conflict.
func newService(r *rand.Rand, namespace string, index int, permanent bool) *service {
	s := &service{
		name: fmt.Sprintf("%s-%d", map[bool]string{true: "stays", false: "goes"}[permanent], index), permanent: permanent, index: index,
		port: int32(80 + r.IntN(3)), external: r.IntN(4) == 0, affinity: r.IntN(5) == 0,
		// The API server's clock may be up to 83 days fast or slow.
		created: time.Now().Add(time.Duration(r.IntN(5)-2) * 1000 * time.Hour), uid: fmt.Sprintf("%s-%d-%d", namespace, index, r.Uint32()),
	}
	if r.IntN(3) == 0 {
		s.nodePort, s.local = int32(30000+index), r.IntN(2) == 0
	}
	s.sliceName = s.name + sliceSuffix
	s.redraw(r)
	return s
}

func (s *service) redraw(r *rand.Rand) {
	s.endpoints = nil
	for range r.IntN(6) {
		s.endpoints = append(s.endpoints, endpoint{
			index: r.IntN(250), ready: r.IntN(4) > 0,
			terminating: r.IntN(8) == 0, here: r.IntN(4) == 0,
		})
	}
	if s.permanent {
		s.endpoints = append(s.endpoints, endpoint{index: 250 + r.IntN(4), ready: true, here: s.local})
	}
	slices.SortFunc(s.endpoints, func(a, b endpoint) int { return a.index - b.index })
	s.endpoints = slices.CompactFunc(s.endpoints, func(a, b endpoint) bool { return a.index == b.index })
}

func (s *service) change(r *rand.Rand) {
	switch r.IntN(5) {
	case 0:
		s.port = int32(80 + r.IntN(8))
	case 1:
		s.external = !s.external
	case 2:
		s.affinity = !s.affinity
	default:
		s.redraw(r)
	}
}

func (s *service) meta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: s.name, UID: types.UID(s.uid),
		CreationTimestamp: metav1.NewTime(s.created),
	}
}

func (s *service) spec(namespace string) *corev1.Service {
	out := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: s.meta(namespace)}
	out.Spec.Type = corev1.ServiceTypeClusterIP
	out.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.%d.%d", 1+s.index/250, 1+s.index%250)}
	out.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	if s.index%3 == 0 {
		out.Spec.ClusterIPs = append(out.Spec.ClusterIPs, fmt.Sprintf("fd00:96::%x", 1+s.index))
		out.Spec.IPFamilies = append(out.Spec.IPFamilies, corev1.IPv6Protocol)
	}
	out.Spec.ClusterIP = out.Spec.ClusterIPs[0]
	out.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: s.port}}
	if s.index%4 == 1 {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53})
	}
	if s.nodePort > 0 {
		out.Spec.Type, out.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, s.nodePort
		if len(out.Spec.Ports) > 1 {
			out.Spec.Ports[1].NodePort = s.nodePort + 1000
		}
		if s.local {
			out.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	}
	if s.external {
		out.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", 1+s.index%250)}
	}
	if s.affinity {
		out.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	return out
}

const sliceSuffix = "-abcde"

func (s *service) slice(namespace string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: s.meta(namespace),
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	out.Name = s.sliceName
	out.Labels = map[string]string{discoveryv1.LabelServiceName: s.name}
	for _, e := range s.endpoints {
		host := "other"
		if e.here {
			host = nodeName
		}
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.244.%d.%d", s.index%250, e.index)},
			Conditions: discoveryv1.EndpointConditions{Ready: &e.ready, Serving: &e.ready, Terminating: &e.terminating}, NodeName: &host,
		})
	}
	for _, p := range s.spec(namespace).Spec.Ports {
		to := p.Port + 8000
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &to})
	}
	return out
}

func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return out
}
