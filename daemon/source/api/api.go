// Package api names the parts of the Kubernetes API that Edgeway reads: kinds, labels and annotations.
package api

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Core is the group of Services and Nodes.
func Core() schema.GroupVersion { return corev1.SchemeGroupVersion }

// Discovery is the group of EndpointSlices.
func Discovery() schema.GroupVersion { return discoveryv1.SchemeGroupVersion }

// Networking is the group of ServiceCIDRs.
func Networking() schema.GroupVersion { return networkingv1.SchemeGroupVersion }

// AddTo registers the kinds that Edgeway reads in a scheme. The other kinds of the three API groups would add 3 MB to
// the program.
func AddTo(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(Core(), &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(Discovery(), &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	scheme.AddKnownTypes(Networking(), &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{})
	for _, group := range []schema.GroupVersion{Core(), Discovery(), Networking()} {
		metav1.AddToGroupVersion(scheme, group)
	}
}

// The labels that Edgeway reads.
const (
	LabelServiceName      = discoveryv1.LabelServiceName
	LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	LabelHeadless         = corev1.IsHeadlessService
	LabelZone             = corev1.LabelTopologyZone
)

// The annotations that Edgeway reads. Annotations returns the list.
const (
	// AnnotationLastChange is an annotation of EndpointSlices. All other annotations belong to Services.
	AnnotationLastChange = corev1.EndpointsLastChangeTriggerTime
	// AnnotationPrefix is the prefix of the keys of Edgeway's own annotations.
	AnnotationPrefix = "edgeway.io/"
	// AnnotationTrafficHint opts a Service in to the flowtable fast path. The only valid value is "LongLived".
	// KEP-4963 proposes the hint as the field spec.trafficHint, which manifests may use.
	AnnotationTrafficHint = AnnotationPrefix + "traffic-hint"
	AnnotationScheduler   = AnnotationPrefix + "ipvs-scheduler"
	AnnotationWeights     = AnnotationPrefix + "ipvs-weights"
)

// Annotations returns the keys of all annotations that Edgeway reads.
func Annotations() []string {
	return []string{AnnotationLastChange, AnnotationTrafficHint, AnnotationScheduler, AnnotationWeights}
}
