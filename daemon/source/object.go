package source

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// The kinds of objects. An APIServer is not a Kubernetes object: it describes the API server that a source reads from.
// A Manifest is a file that contains objects. A Document holds the faults that Edgeway found in an unusable
// manifest document.
const (
	KindService       = "Service"
	KindEndpointSlice = "EndpointSlice"
	KindNode          = "Node"
	KindServiceCIDR   = "ServiceCIDR"
	KindAPIServer     = "APIServer"
	KindManifest      = "Manifest"
	KindDocument      = "Document"
)

// Key identifies an object. Namespace is "" for all kinds except Service and EndpointSlice. Name is a path for a
// Manifest, "FILE:LINE" for a Document, and a URL for an APIServer.
type Key = fault.Object

// Object is a *Service, *EndpointSlice, *Node, *ServiceCIDR, *APIServer, *Manifest or *Document.
type Object interface {
	Key() Key
	// Problems returns a fault for each invalid field that Edgeway ignores.
	Problems() []fault.Fault
}

// ObjectFaultID is the ID of faults in objects. Edgeway ignores the field that the fault names and serves the rest of
// the object.
const ObjectFaultID = "object"

// FaultOf returns a fault for an object, with a formatted message. field is a path such as "spec.ports[0].port", or ""
// if the fault concerns the whole object.
func FaultOf(key Key, field, format string, args ...any) fault.Fault {
	return fault.Fault{
		ID: ObjectFaultID, Severity: fault.Warning, Object: key, Field: field, Message: fmt.Sprintf(format, args...),
	}
}

// maxFaults is the maximum number of faults that Faults stores for one object. If there are more faults, List adds a
// fault that counts the rest.
const maxFaults = 20

// Faults collects the faults of one object. On a nil *Faults, HasRoom returns false and Addf does nothing.
type Faults struct {
	Object Key
	list   []fault.Fault
	more   int
}

// HasRoom reports whether Add can store another fault. When HasRoom returns false, it counts the omitted fault, and
// List reports the count. Because one Service can have 15,000 invalid addresses, a message for each address would use
// too much memory.
func (f *Faults) HasRoom() bool {
	if f != nil && len(f.list) == maxFaults {
		f.more++
	}
	return f != nil && len(f.list) < maxFaults
}

// Addf calls HasRoom and, if the result is true, adds the fault that FaultOf returns.
func (f *Faults) Addf(field, format string, args ...any) {
	if f.HasRoom() {
		f.Add(FaultOf(f.Object, field, format, args...))
	}
}

// Add adds a fault. Call Add only after HasRoom has returned true.
func (f *Faults) Add(found fault.Fault) { f.list = append(f.list, found) }

// List returns the faults, or nil if there are none.
func (f *Faults) List() []fault.Fault {
	if f.more > 0 {
		f.list, f.more = append(f.list, FaultOf(f.Object, "", "%d more faults", f.more)), 0
	}
	return f.list
}

// Flaws holds the faults that a source found in an object.
type Flaws struct {
	Faults []fault.Fault `json:"faults,omitempty"`
}

// Problems implements Object.
func (f *Flaws) Problems() []fault.Fault { return f.Faults }

// NewReplacement returns a replacement for an unusable object, or nil if the object's kind has no replacement. The
// replacement contains only the object's name and a fault.
func NewReplacement(key Key, message string) Object {
	flaws := Flaws{[]fault.Fault{FaultOf(key, "", "%s", message)}}
	switch key.Kind {
	case KindService:
		return &Service{Namespace: key.Namespace, Name: key.Name, Flaws: flaws}
	case KindEndpointSlice:
		return &EndpointSlice{Namespace: key.Namespace, Name: key.Name, Flaws: flaws}
	case KindNode:
		return &Node{Name: key.Name, Flaws: flaws}
	case KindServiceCIDR:
		return &ServiceCIDR{Name: key.Name, Flaws: flaws}
	}
	return nil
}

// Service holds the fields that a proxy reads from a Service with a ClusterIP. The sources ignore headless Services,
// ExternalName Services, and Services that select another proxy.
type Service struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"`
	Created   time.Time `json:"created,omitzero"`

	// ClusterIPs holds at most one address of each family.
	ClusterIPs      []netip.Addr `json:"clusterIPs,omitempty"`
	ExternalIPs     []netip.Addr `json:"externalIPs,omitempty"`
	LoadBalancerIPs []netip.Addr `json:"loadBalancerIPs,omitempty"`
	// SourceRanges restricts which clients can reach LoadBalancerIPs, separately for each address family. If a family
	// has no ranges, any client can connect unless BlockedFamilies lists the family.
	SourceRanges []netip.Prefix `json:"sourceRanges,omitempty"`
	// BlockedFamilies lists the families that have only invalid source ranges. A client with an address in a blocked
	// family cannot connect.
	BlockedFamilies []plan.Family `json:"noSources,omitempty"`

	Ports               []ServicePort `json:"ports,omitempty"`
	Affinity            time.Duration `json:"affinity,omitempty"` // 0 means no affinity
	InternalLocal       bool          `json:"internalLocal,omitempty"`
	ExternalLocal       bool          `json:"externalLocal,omitempty"`
	HealthCheckNodePort uint16        `json:"healthCheckNodePort,omitempty"` // set only if ExternalLocal is true
	LongLived           bool          `json:"longLived,omitempty"`
	Scheduler           string        `json:"scheduler,omitempty"` // an IPVS scheduler, in lower-case letters
	Weights             []Weight      `json:"weights,omitempty"`   // the first entry that fits an endpoint applies
	// Manifest reports whether the Service comes from a file on this host. Only root can write the file, so the Service
	// can use any address of the host.
	Manifest bool `json:"-"`

	Flaws
}

// Weight is the IPVS weight of the endpoints on a Node or in an address range.
type Weight struct {
	Node   string       `json:"node,omitempty"` // "" if Range selects the endpoints
	Range  netip.Prefix `json:"range,omitzero"`
	Weight uint16       `json:"weight"` // at least 1
}

// Fits reports whether the weight applies to e.
func (w *Weight) Fits(e *Endpoint) bool {
	if w.Node != "" {
		return w.Node == e.NodeName
	}
	return w.Range.Contains(e.Addr)
}

// ServicePort describes one port of a Service. A NodePort of 0 means that the port has no NodePort.
type ServicePort struct {
	Name     string        `json:"name,omitempty"`
	Protocol plan.Protocol `json:"protocol"`
	Port     uint16        `json:"port"`
	NodePort uint16        `json:"nodePort,omitempty"`
}

// EndpointSlice holds the fields that a proxy reads from an EndpointSlice with IPv4 or IPv6 addresses.
type EndpointSlice struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Service   string      `json:"service"` // in the same namespace
	Family    plan.Family `json:"family"`
	Ports     []SlicePort `json:"ports,omitempty"`
	Endpoints []Endpoint  `json:"endpoints,omitempty"`
	// TriggerTime is the time of the change that caused this version of the slice, or zero if the time is unknown.
	// Edgeway reads the time from the annotation endpoints.kubernetes.io/last-change-trigger-time.
	TriggerTime time.Time `json:"triggered,omitzero"`
	// Manifest reports whether the slice comes from a file on this host. Only root can write the file, so an endpoint
	// can have an address of this host.
	Manifest bool `json:"-"`

	Flaws
}

// SlicePort describes one port of an EndpointSlice.
type SlicePort struct {
	Name     string        `json:"name,omitempty"`
	Protocol plan.Protocol `json:"protocol"`
	Port     uint16        `json:"port"`
}

// Endpoint describes one endpoint in an EndpointSlice. In the Kubernetes API, each condition is optional. A missing
// ready or serving condition counts as true, but a missing terminating condition counts as false.
type Endpoint struct {
	Addr        netip.Addr `json:"addr"`
	Ready       bool       `json:"ready,omitempty"`
	Serving     bool       `json:"serving,omitempty"`
	Terminating bool       `json:"terminating,omitempty"`
	NodeName    string     `json:"nodeName,omitempty"`
	*Hints                 // nil if the endpoint has no hints
}

// Hints lists the Nodes and zones that should use an endpoint. Endpoints with identical hints share one Hints value,
// because most endpoints in a slice have the same hints.
type Hints struct {
	ForNodes []string `json:"forNodes,omitempty"`
	ForZones []string `json:"forZones,omitempty"`
}

// Nodes returns ForNodes, or nil if h is nil.
func (h *Hints) Nodes() []string {
	if h == nil {
		return nil
	}
	return h.ForNodes
}

// Zones returns ForZones, or nil if h is nil.
func (h *Hints) Zones() []string {
	if h == nil {
		return nil
	}
	return h.ForZones
}

// Equal reports whether h and o list the same Nodes and zones. Both may be nil.
func (h *Hints) Equal(o *Hints) bool {
	return slices.Equal(h.Nodes(), o.Nodes()) && slices.Equal(h.Zones(), o.Zones())
}

// Node holds the fields that a proxy reads from the host's Node object.
type Node struct {
	Name      string         `json:"name"`
	Addresses []netip.Addr   `json:"addresses,omitempty"` // InternalIP first, then ExternalIP
	Zone      string         `json:"zone,omitempty"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs,omitempty"`
	// Leaving reports whether the Node has a deletion timestamp or the taint ToBeDeletedByClusterAutoscaler.
	Leaving bool `json:"leaving,omitempty"`

	Flaws
}

// ServiceCIDR lists the ranges that the API server allocates ClusterIPs from, at most one range for each family.
type ServiceCIDR struct {
	Name  string         `json:"name"`
	CIDRs []netip.Prefix `json:"cidrs"`

	Flaws
}

// APIServer describes the API server that a source reads from. No Service can use an address of the API server as an
// external or load-balancer address (CVE-2020-8554).
type APIServer struct {
	Name string `json:"name"`
	// Addrs lists the proven addresses of the API server and its proxy, and the literal addresses in their URLs,
	// sorted.
	Addrs []netip.Addr `json:"trusted"`
	// ProvenAddrs lists the addresses that TLS handshakes have proven, most recent first.
	ProvenAddrs []ServerAddr `json:"proven,omitempty"`

	Flaws
}

// ServerAddr is an address where a TLS handshake with the API server has succeeded.
type ServerAddr struct {
	Addr     netip.Addr `json:"addr"`
	ProvedAt time.Time  `json:"proved"`
	// MissingSince is the time when name servers stopped returning the address for the server's host name, or zero if
	// they still return the address.
	MissingSince time.Time `json:"missing,omitzero"`
}

// Holding describes a port that several Services request, and names the Service that owns it.
type Holding struct {
	Addr      netip.Addr    `json:"addr,omitzero"` // invalid if the port is a port of the host
	Protocol  plan.Protocol `json:"protocol"`
	Port      uint16        `json:"port"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
}

// Compare orders Holdings by address, protocol and port.
func (h Holding) Compare(o Holding) int {
	return cmp.Or(h.Addr.Compare(o.Addr), cmp.Compare(h.Protocol, o.Protocol), cmp.Compare(h.Port, o.Port))
}

// Manifest is a file that contains objects. The file source stores Manifests to detect a file that no longer contains
// any objects.
type Manifest struct {
	Name string `json:"name"`
	// Ended reports whether the file ends with the YAML document end marker. If a later version of the file lacks the
	// marker, Edgeway treats the file as truncated.
	Ended bool `json:"ended,omitempty"`

	Flaws
}

// Document is a manifest document that Edgeway cannot use.
type Document struct {
	Name string `json:"name"`
	Flaws
}

// Key implements Object.
func (s *Service) Key() Key { return Key{Kind: KindService, Namespace: s.Namespace, Name: s.Name} }

// Key implements Object.
func (s *EndpointSlice) Key() Key {
	return Key{Kind: KindEndpointSlice, Namespace: s.Namespace, Name: s.Name}
}

// Key implements Object.
func (n *Node) Key() Key { return Key{Kind: KindNode, Name: n.Name} }

// Key implements Object.
func (c *ServiceCIDR) Key() Key { return Key{Kind: KindServiceCIDR, Name: c.Name} }

// Key implements Object.
func (a *APIServer) Key() Key { return Key{Kind: KindAPIServer, Name: a.Name} }

// Key implements Object.
func (m *Manifest) Key() Key { return Key{Kind: KindManifest, Name: m.Name} }

// Key implements Object.
func (d *Document) Key() Key { return Key{Kind: KindDocument, Name: d.Name} }
