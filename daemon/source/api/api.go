// Package api defines the Kubernetes kinds, labels and annotations that Edgeway reads.
package api

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Core returns the API group and version of Services and Nodes.
func Core() schema.GroupVersion { return corev1.SchemeGroupVersion }

// Discovery returns the API group and version of EndpointSlices.
func Discovery() schema.GroupVersion { return discoveryv1.SchemeGroupVersion }

// Networking returns the API group and version of ServiceCIDRs.
func Networking() schema.GroupVersion { return networkingv1.SchemeGroupVersion }

// AddToScheme extends a scheme with the kinds that Edgeway reads. Edgeway does not register the other kinds of the
// three API groups, because they would add 3 MB to the program.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(Core(), &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(Discovery(), &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	scheme.AddKnownTypes(Networking(), &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{})
	for _, group := range []schema.GroupVersion{Core(), Discovery(), Networking()} {
		metav1.AddToGroupVersion(scheme, group)
	}
}

// Edgeway reads these labels.
const (
	LabelServiceName      = discoveryv1.LabelServiceName
	LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	LabelHeadless         = corev1.IsHeadlessService
	LabelZone             = corev1.LabelTopologyZone
)
