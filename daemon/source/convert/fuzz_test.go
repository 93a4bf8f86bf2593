package convert

import (
	"encoding/json"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"edgeway/test/hostile"
)

func sameData(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }

// Converting an arbitrary object must not panic, and a converted object with a usable name must be valid.
func FuzzConvert(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"a","name":"b"},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80}]}}`))
	f.Add([]byte(`{"metadata":{"namespace":"a","name":"b","labels":{"kubernetes.io/service-name":"b"}},"addressType":"IPv4","ports":[{"name":"","port":80}],"endpoints":[{"addresses":["10.0.0.1"]}]}`))
	f.Add([]byte(`{"metadata":{"name":"n"},"spec":{"podCIDRs":["10.0.0.0/8"],"cidrs":["10.0.0.0/8"]},"status":{"addresses":[{"type":"InternalIP","address":"1.2.3.4"}]}}`))
	for _, object := range hostile.Objects(f) {
		f.Add(object)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c Converter
		var svc corev1.Service
		if json.Unmarshal(raw, &svc) == nil {
			if out, ok := c.Service(&svc); ok && isLabel(out.Namespace) && isLabel(out.Name) {
				if err := Validate(out); err != nil {
					t.Error(err)
				}
			}
		}
		var slice discoveryv1.EndpointSlice
		if json.Unmarshal(raw, &slice) == nil {
			if out, ok := c.EndpointSlice(&slice); ok && out.Service != "" && out.Family != 0 {
				if err := Validate(out); err != nil {
					t.Error(err)
				}
			}
		}
		var node corev1.Node
		if json.Unmarshal(raw, &node) == nil && isSubdomain(node.Name) {
			if err := Validate(c.Node(&node)); err != nil {
				t.Error(err)
			}
		}
		var cidr networkingv1.ServiceCIDR
		if json.Unmarshal(raw, &cidr) == nil && isSubdomain(cidr.Name) {
			if err := Validate(c.ServiceCIDR(&cidr)); err != nil {
				t.Error(err)
			}
		}
	})
}
