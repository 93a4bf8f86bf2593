package convert

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/daemon/source"
)

func TestConversionPanicIsReported(t *testing.T) {
	c := Converter{BeforeConvert: func(key source.Key) {
		if key.Name == "bad" {
			panic("on purpose")
		}
	}}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "bad"}
	svc, _ := c.Service(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}})
	slice, _ := c.EndpointSlice(&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4})
	for _, obj := range []source.Object{
		svc, slice, c.Node(&corev1.Node{ObjectMeta: meta}),
		c.ServiceCIDR(&networkingv1.ServiceCIDR{ObjectMeta: meta}),
	} {
		problems := obj.Problems()
		if obj.Key().Name != "bad" || len(problems) != 1 || problems[0].Object != obj.Key() ||
			!strings.Contains(problems[0].Message, "on purpose") {
			t.Errorf("%s: problems %v", obj.Key(), problems)
		}
	}
	meta.Name = "good"
	spec := corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80, Protocol: "TCP"}}}
	if svc, ok := c.Service(&corev1.Service{ObjectMeta: meta, Spec: spec}); !ok || len(svc.Faults) != 0 {
		t.Errorf("another one: %+v", svc)
	}
}
