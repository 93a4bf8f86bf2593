package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Service is one of the group Core.
type Service struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1"`

	Spec   ServiceSpec   `json:"spec,omitempty" protobuf:"bytes,2"`
	Status ServiceStatus `json:"status,omitempty" protobuf:"bytes,3"`
}

// ServiceSpec is what a Service shall be.
type ServiceSpec struct {
	Type                          string                 `json:"type,omitempty" protobuf:"bytes,4"`
	ClusterIP                     string                 `json:"clusterIP,omitempty" protobuf:"bytes,3"`
	ClusterIPs                    []string               `json:"clusterIPs,omitempty" protobuf:"bytes,18"`
	ExternalIPs                   []string               `json:"externalIPs,omitempty" protobuf:"bytes,5"`
	LoadBalancerSourceRanges      []string               `json:"loadBalancerSourceRanges,omitempty" protobuf:"bytes,9"`
	IPFamilies                    []string               `json:"ipFamilies,omitempty" protobuf:"bytes,19"`
	Ports                         []ServicePort          `json:"ports,omitempty" protobuf:"bytes,1"`
	SessionAffinity               string                 `json:"sessionAffinity,omitempty" protobuf:"bytes,7"`
	SessionAffinityConfig         *SessionAffinityConfig `json:"sessionAffinityConfig,omitempty" protobuf:"bytes,14"`
	InternalTrafficPolicy         *string                `json:"internalTrafficPolicy,omitempty" protobuf:"bytes,22"`
	ExternalTrafficPolicy         string                 `json:"externalTrafficPolicy,omitempty" protobuf:"bytes,11"`
	HealthCheckNodePort           int32                  `json:"healthCheckNodePort,omitempty" protobuf:"bytes,12"`
	AllocateLoadBalancerNodePorts *bool                  `json:"allocateLoadBalancerNodePorts,omitempty"` // of manifests alone

	// TrafficHint is of manifests alone: KEP-4963 proposes it, and Kubernetes 1.37 has no such field.
	TrafficHint *string `json:"trafficHint,omitempty" kep:"4963"`

	// What follows is not read.
	Selector                 map[string]string `json:"selector,omitempty"`
	LoadBalancerIP           string            `json:"loadBalancerIP,omitempty"`
	ExternalName             string            `json:"externalName,omitempty"`
	PublishNotReadyAddresses bool              `json:"publishNotReadyAddresses,omitempty"`
	IPFamilyPolicy           *string           `json:"ipFamilyPolicy,omitempty"`
	LoadBalancerClass        *string           `json:"loadBalancerClass,omitempty"`
	TrafficDistribution      *string           `json:"trafficDistribution,omitempty"` // it is in the hints of the endpoints
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name     string `json:"name,omitempty" protobuf:"bytes,1"`
	Protocol string `json:"protocol,omitempty" protobuf:"bytes,2"`
	Port     int32  `json:"port" protobuf:"varint,3"`
	NodePort int32  `json:"nodePort,omitempty" protobuf:"varint,5"`

	// What follows is not read.
	AppProtocol *string            `json:"appProtocol,omitempty"`
	TargetPort  intstr.IntOrString `json:"targetPort,omitempty"`
}

// SessionAffinityConfig has the time of SessionAffinity.
type SessionAffinityConfig struct {
	ClientIP *ClientIPConfig `json:"clientIP,omitempty" protobuf:"bytes,1"`
}

// ClientIPConfig is that of ServiceAffinityClientIP.
type ClientIPConfig struct {
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty" protobuf:"varint,1"`
}

// ServiceStatus is what a Service is.
type ServiceStatus struct {
	LoadBalancer LoadBalancerStatus `json:"loadBalancer,omitempty" protobuf:"bytes,1"`
	Conditions   []metav1.Condition `json:"conditions,omitempty"` // not read
}

// LoadBalancerStatus has the addresses of the load balancer.
type LoadBalancerStatus struct {
	Ingress []LoadBalancerIngress `json:"ingress,omitempty" protobuf:"bytes,1"`
}

// LoadBalancerIngress is one address, or a name alone.
type LoadBalancerIngress struct {
	IP     string  `json:"ip,omitempty" protobuf:"bytes,1"`
	IPMode *string `json:"ipMode,omitempty" protobuf:"bytes,3"`

	// What follows is not read.
	Hostname string       `json:"hostname,omitempty"`
	Ports    []PortStatus `json:"ports,omitempty"`
}

// PortStatus is not read.
type PortStatus struct {
	Port     int32   `json:"port"`
	Protocol string  `json:"protocol"`
	Error    *string `json:"error,omitempty"`
}

// EndpointSlice is one of the group Discovery.
type EndpointSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1"`

	AddressType string         `json:"addressType" protobuf:"bytes,4"`
	Endpoints   []Endpoint     `json:"endpoints" protobuf:"bytes,2"`
	Ports       []EndpointPort `json:"ports" protobuf:"bytes,3"`
}

// Endpoint is one of an EndpointSlice.
type Endpoint struct {
	Addresses  []string           `json:"addresses" protobuf:"bytes,1"`
	Conditions EndpointConditions `json:"conditions,omitempty" protobuf:"bytes,2"`
	NodeName   *string            `json:"nodeName,omitempty" protobuf:"bytes,6"`
	Hints      *EndpointHints     `json:"hints,omitempty" protobuf:"bytes,8"`

	// What follows is not read.
	Hostname           *string           `json:"hostname,omitempty"`
	TargetRef          *ObjectReference  `json:"targetRef,omitempty"`
	DeprecatedTopology map[string]string `json:"deprecatedTopology,omitempty"`
	Zone               *string           `json:"zone,omitempty"`
}

// EndpointConditions are true or false, or not known.
type EndpointConditions struct {
	Ready       *bool `json:"ready,omitempty" protobuf:"bytes,1"`
	Serving     *bool `json:"serving,omitempty" protobuf:"bytes,2"`
	Terminating *bool `json:"terminating,omitempty" protobuf:"bytes,3"`
}

// EndpointHints say for whom an endpoint is.
type EndpointHints struct {
	ForZones []Hint `json:"forZones,omitempty" protobuf:"bytes,1"`
	ForNodes []Hint `json:"forNodes,omitempty" protobuf:"bytes,2"`
}

// Hint names a zone or a Node.
type Hint struct {
	Name string `json:"name" protobuf:"bytes,1"`
}

// ObjectReference is not read.
type ObjectReference struct {
	Kind            string `json:"kind,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"`
	APIVersion      string `json:"apiVersion,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	FieldPath       string `json:"fieldPath,omitempty"`
}

// EndpointPort is a port of an EndpointSlice.
type EndpointPort struct {
	Name        *string `json:"name,omitempty" protobuf:"bytes,1"`
	Protocol    *string `json:"protocol,omitempty" protobuf:"bytes,2"`
	Port        *int32  `json:"port,omitempty" protobuf:"bytes,3"`
	AppProtocol *string `json:"appProtocol,omitempty"` // not read
}

// Node is one of the group Core.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1"`

	Spec   NodeSpec   `json:"spec,omitempty" protobuf:"bytes,2"`
	Status NodeStatus `json:"status,omitempty" protobuf:"bytes,3"`
}

// NodeSpec is what a Node shall be.
type NodeSpec struct {
	PodCIDR  string   `json:"podCIDR,omitempty" protobuf:"bytes,1"`
	PodCIDRs []string `json:"podCIDRs,omitempty" protobuf:"bytes,7"`
	Taints   []Taint  `json:"taints,omitempty" protobuf:"bytes,5"`

	// What follows is not read.
	ProviderID          string `json:"providerID,omitempty"`
	Unschedulable       bool   `json:"unschedulable,omitempty"`
	DoNotUseExternalID  string `json:"externalID,omitempty"`
	PodPreemptionPolicy Unread `json:"podPreemptionPolicy,omitzero"`
	ConfigSource        Unread `json:"configSource,omitzero"`
}

// Taint keeps pods away.
type Taint struct {
	Key string `json:"key" protobuf:"bytes,1"`

	// What follows is not read.
	Value     string       `json:"value,omitempty"`
	Effect    string       `json:"effect"`
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// NodeStatus is what a Node is.
type NodeStatus struct {
	Addresses []NodeAddress `json:"addresses,omitempty" protobuf:"bytes,5"`

	Capacity         Unread `json:"capacity,omitzero"`
	Allocatable      Unread `json:"allocatable,omitzero"`
	Phase            Unread `json:"phase,omitzero"`
	Conditions       Unread `json:"conditions,omitzero"`
	DaemonEndpoints  Unread `json:"daemonEndpoints,omitzero"`
	NodeInfo         Unread `json:"nodeInfo,omitzero"`
	Images           Unread `json:"images,omitzero"`
	VolumesInUse     Unread `json:"volumesInUse,omitzero"`
	VolumesAttached  Unread `json:"volumesAttached,omitzero"`
	Config           Unread `json:"config,omitzero"`
	RuntimeHandlers  Unread `json:"runtimeHandlers,omitzero"`
	Features         Unread `json:"features,omitzero"`
	DeclaredFeatures Unread `json:"declaredFeatures,omitzero"`
}

// NodeAddress is an address of a Node.
type NodeAddress struct {
	Type    string `json:"type" protobuf:"bytes,1"`
	Address string `json:"address" protobuf:"bytes,2"`
}

// ServiceCIDR is one of the group Networking.
type ServiceCIDR struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1"`

	Spec   ServiceCIDRSpec   `json:"spec,omitempty" protobuf:"bytes,2"`
	Status ServiceCIDRStatus `json:"status,omitempty"`
}

// ServiceCIDRSpec has the ranges.
type ServiceCIDRSpec struct {
	CIDRs []string `json:"cidrs,omitempty" protobuf:"bytes,1"`
}

// ServiceCIDRStatus is not read.
type ServiceCIDRStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Unread is anything that is valid JSON.
type Unread struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*Unread) UnmarshalJSON([]byte) error { return nil }
