package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Service is one of the group Core.
type Service struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ServiceSpec   `json:"spec,omitempty"`
	Status ServiceStatus `json:"status,omitempty"`
}

// ServiceSpec is what a Service shall be.
type ServiceSpec struct {
	Type                          string                 `json:"type,omitempty"`
	ClusterIP                     string                 `json:"clusterIP,omitempty"`
	ClusterIPs                    []string               `json:"clusterIPs,omitempty"`
	ExternalIPs                   []string               `json:"externalIPs,omitempty"`
	LoadBalancerSourceRanges      []string               `json:"loadBalancerSourceRanges,omitempty"`
	IPFamilies                    []string               `json:"ipFamilies,omitempty"`
	Ports                         []ServicePort          `json:"ports,omitempty"`
	SessionAffinity               string                 `json:"sessionAffinity,omitempty"`
	SessionAffinityConfig         *SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`
	InternalTrafficPolicy         *string                `json:"internalTrafficPolicy,omitempty"`
	ExternalTrafficPolicy         string                 `json:"externalTrafficPolicy,omitempty"`
	HealthCheckNodePort           int32                  `json:"healthCheckNodePort,omitempty"`
	AllocateLoadBalancerNodePorts *bool                  `json:"allocateLoadBalancerNodePorts,omitempty"` // of manifests alone

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
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Port     int32  `json:"port"`
	NodePort int32  `json:"nodePort,omitempty"`

	// What follows is not read.
	AppProtocol *string            `json:"appProtocol,omitempty"`
	TargetPort  intstr.IntOrString `json:"targetPort,omitempty"`
}

// SessionAffinityConfig has the time of SessionAffinity.
type SessionAffinityConfig struct {
	ClientIP *ClientIPConfig `json:"clientIP,omitempty"`
}

// ClientIPConfig is that of ServiceAffinityClientIP.
type ClientIPConfig struct {
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// ServiceStatus is what a Service is.
type ServiceStatus struct {
	LoadBalancer LoadBalancerStatus `json:"loadBalancer,omitempty"`
	Conditions   []metav1.Condition `json:"conditions,omitempty"` // not read
}

// LoadBalancerStatus has the addresses of the load balancer.
type LoadBalancerStatus struct {
	Ingress []LoadBalancerIngress `json:"ingress,omitempty"`
}

// LoadBalancerIngress is one address, or a name alone.
type LoadBalancerIngress struct {
	IP     string  `json:"ip,omitempty"`
	IPMode *string `json:"ipMode,omitempty"`

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
	metav1.ObjectMeta `json:"metadata,omitempty"`

	AddressType string         `json:"addressType"`
	Endpoints   []Endpoint     `json:"endpoints"`
	Ports       []EndpointPort `json:"ports"`
}

// Endpoint is one of an EndpointSlice.
type Endpoint struct {
	Addresses  []string           `json:"addresses"`
	Conditions EndpointConditions `json:"conditions,omitempty"`
	NodeName   *string            `json:"nodeName,omitempty"`
	Hints      *EndpointHints     `json:"hints,omitempty"`

	// What follows is not read.
	Hostname           *string           `json:"hostname,omitempty"`
	TargetRef          *ObjectReference  `json:"targetRef,omitempty"`
	DeprecatedTopology map[string]string `json:"deprecatedTopology,omitempty"`
	Zone               *string           `json:"zone,omitempty"`
}

// EndpointConditions are true or false, or not known.
type EndpointConditions struct {
	Ready       *bool `json:"ready,omitempty"`
	Serving     *bool `json:"serving,omitempty"`
	Terminating *bool `json:"terminating,omitempty"`
}

// EndpointHints say for whom an endpoint is.
type EndpointHints struct {
	ForZones []Hint `json:"forZones,omitempty"`
	ForNodes []Hint `json:"forNodes,omitempty"`
}

// Hint names a zone or a Node.
type Hint struct {
	Name string `json:"name"`
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
	Name        *string `json:"name,omitempty"`
	Protocol    *string `json:"protocol,omitempty"`
	Port        *int32  `json:"port,omitempty"`
	AppProtocol *string `json:"appProtocol,omitempty"` // not read
}

// Node is one of the group Core.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeSpec   `json:"spec,omitempty"`
	Status NodeStatus `json:"status,omitempty"`
}

// NodeSpec is what a Node shall be.
type NodeSpec struct {
	PodCIDR  string   `json:"podCIDR,omitempty"`
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	Taints   []Taint  `json:"taints,omitempty"`

	// What follows is not read.
	ProviderID          string `json:"providerID,omitempty"`
	Unschedulable       bool   `json:"unschedulable,omitempty"`
	ExternalID          string `json:"externalID,omitempty"`
	PodPreemptionPolicy Unread `json:"podPreemptionPolicy,omitzero"`
	ConfigSource        Unread `json:"configSource,omitzero"`
}

// Taint keeps pods away.
type Taint struct {
	Key string `json:"key"`

	// What follows is not read.
	Value     string       `json:"value,omitempty"`
	Effect    string       `json:"effect"`
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// NodeStatus is what a Node is.
type NodeStatus struct {
	Addresses []NodeAddress `json:"addresses,omitempty"`

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
	Type    string `json:"type"`
	Address string `json:"address"`
}

// ServiceCIDR is one of the group Networking.
type ServiceCIDR struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ServiceCIDRSpec   `json:"spec,omitempty"`
	Status ServiceCIDRStatus `json:"status,omitempty"`
}

// ServiceCIDRSpec has the ranges.
type ServiceCIDRSpec struct {
	CIDRs []string `json:"cidrs,omitempty"`
}

// ServiceCIDRStatus is not read.
type ServiceCIDRStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Unread is anything that is valid JSON.
type Unread struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*Unread) UnmarshalJSON([]byte) error { return nil }
