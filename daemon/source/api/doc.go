// Package api has the objects of Kubernetes that are read, as an API server sends them and as manifests have them.
//
// They have all fields of k8s.io/api v0.37, as a misspelt one in a manifest is a fault, but of a Node's status, where Unread stands
// for what nobody looks at. Of protobuf, which an API server sends, only the fields with a tag of that name are read, and of metadata
// what inMetadata says: most bytes of an object are about who wrote which of its fields. The generated types would take a sixth of the
// program, as those of one kind bring those of all; tests compare these ones with them.
package api

import "k8s.io/apimachinery/pkg/runtime/schema"

// The groups, in the only version that is read of each.

// Core has Services and Nodes.
func Core() schema.GroupVersion { return schema.GroupVersion{Version: "v1"} }

// Discovery has EndpointSlices.
func Discovery() schema.GroupVersion {
	return schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}
}

// Networking has ServiceCIDRs.
func Networking() schema.GroupVersion {
	return schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}
}

// The labels and annotations that have a meaning here.
const (
	LabelServiceName      = "kubernetes.io/service-name"
	LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	LabelHeadless         = "service.kubernetes.io/headless"
	LabelZone             = "topology.kubernetes.io/zone"
	AnnotationLastChange  = "endpoints.kubernetes.io/last-change-trigger-time"
	AnnotationTrafficHint = "edgeway.io/traffic-hint"
	AnnotationScheduler   = "edgeway.io/ipvs-scheduler"
	AnnotationWeights     = "edgeway.io/ipvs-weights"
)

// The values of fields that have a meaning here.
const (
	ClusterIPNone = "None"

	ServiceTypeClusterIP    = "ClusterIP"
	ServiceTypeNodePort     = "NodePort"
	ServiceTypeLoadBalancer = "LoadBalancer"
	ServiceTypeExternalName = "ExternalName"

	ServiceAffinityNone     = "None"
	ServiceAffinityClientIP = "ClientIP"

	LoadBalancerIPModeVIP   = "VIP"
	LoadBalancerIPModeProxy = "Proxy"

	AddressTypeIPv4 = "IPv4"
	AddressTypeIPv6 = "IPv6"
	AddressTypeFQDN = "FQDN"

	NodeInternalIP = "InternalIP"
	NodeExternalIP = "ExternalIP"
)
