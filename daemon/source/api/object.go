package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServiceList is a list of Services.
type ServiceList = List[Service]

// EndpointSliceList is a list of EndpointSlices.
type EndpointSliceList = List[EndpointSlice]

// NodeList is a list of Nodes.
type NodeList = List[Node]

// ServiceCIDRList is a list of ServiceCIDRs.
type ServiceCIDRList = List[ServiceCIDR]

// List is a list of objects, as an API server answers with.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1"`
	Items           []T `json:"items" protobuf:"bytes,2"`
}

// AddTo makes a scheme know the objects, and no others.
func AddTo(scheme *runtime.Scheme) {
	add := func(group schema.GroupVersion, kind string, object, list runtime.Object) {
		scheme.AddKnownTypeWithName(group.WithKind(kind), object)
		scheme.AddKnownTypeWithName(group.WithKind(kind+"List"), list)
	}
	add(Core(), "Service", &Service{}, &ServiceList{})
	add(Core(), "Node", &Node{}, &NodeList{})
	add(Discovery(), "EndpointSlice", &EndpointSlice{}, &EndpointSliceList{})
	add(Networking(), "ServiceCIDR", &ServiceCIDR{}, &ServiceCIDRList{})
	for _, group := range []schema.GroupVersion{Core(), Discovery(), Networking()} {
		metav1.AddToGroupVersion(scheme, group)
	}
}

// DeepCopyObject implements runtime.Object. Nothing writes to what was read, so all copies share what they point to.
func (s *Service) DeepCopyObject() runtime.Object { return new(*s) }

// DeepCopyObject implements runtime.Object, as that of a Service does.
func (s *EndpointSlice) DeepCopyObject() runtime.Object { return new(*s) }

// DeepCopyObject implements runtime.Object, as that of a Service does.
func (n *Node) DeepCopyObject() runtime.Object { return new(*n) }

// DeepCopyObject implements runtime.Object, as that of a Service does.
func (c *ServiceCIDR) DeepCopyObject() runtime.Object { return new(*c) }

// DeepCopyObject implements runtime.Object, as that of a Service does.
func (l *List[T]) DeepCopyObject() runtime.Object { return new(*l) }

// Reset and Unmarshal are what the protobuf serializer of apimachinery asks for.

// Reset empties it.
func (s *Service) Reset() { *s = Service{} }

// Reset empties it.
func (s *EndpointSlice) Reset() { *s = EndpointSlice{} }

// Reset empties it.
func (n *Node) Reset() { *n = Node{} }

// Reset empties it.
func (c *ServiceCIDR) Reset() { *c = ServiceCIDR{} }

// Reset empties it.
func (l *List[T]) Reset() { *l = List[T]{} }

// Unmarshal reads protobuf.
func (s *Service) Unmarshal(data []byte) error { return unmarshal(data, s) }

// Unmarshal reads protobuf.
func (s *EndpointSlice) Unmarshal(data []byte) error { return unmarshal(data, s) }

// Unmarshal reads protobuf.
func (n *Node) Unmarshal(data []byte) error { return unmarshal(data, n) }

// Unmarshal reads protobuf.
func (c *ServiceCIDR) Unmarshal(data []byte) error { return unmarshal(data, c) }

// Unmarshal reads protobuf.
func (l *List[T]) Unmarshal(data []byte) error { return unmarshal(data, l) }
