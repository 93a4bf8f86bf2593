package plan

import (
	"cmp"
	"net/netip"
)

// Frontend is an address and port where clients reach a ServicePort.
type Frontend struct {
	Kind FrontendKind `json:"kind"`
	Port uint16       `json:"port"`
	// Routes holds the Route for new connections from each Origin.
	Routes [numOrigins]Route `json:"routes"`
	// Addr is invalid for a NodePort. A NodePort accepts connections on every address in Node.NodePortAddrs.
	Addr netip.Addr `json:"address,omitzero"`
	// AllowFrom lists the source ranges from which clients may connect (loadBalancerSourceRanges), in the form that
	// NormalizePrefixes returns. A nil AllowFrom allows every source, and an empty, non-nil AllowFrom allows none.
	AllowFrom []netip.Prefix `json:"allowFrom,omitzero"`
}

// Compare defines the order of ServicePort.Frontends: by kind, address and port.
func (f *Frontend) Compare(o *Frontend) int {
	return cmp.Or(cmp.Compare(f.Kind, o.Kind), f.Addr.Compare(o.Addr), cmp.Compare(f.Port, o.Port))
}

// FrontendKind identifies the Service field that defines a frontend.
type FrontendKind uint8

// The kinds of frontends.
const (
	ClusterIP FrontendKind = iota
	ExternalIP
	LoadBalancerIP
	NodePort
)

var kinds = []string{"ClusterIP", "ExternalIP", "LoadBalancerIP", "NodePort"}

// String returns the Kubernetes name of the kind.
func (k FrontendKind) String() string { return kinds[k] }

// MarshalText implements encoding.TextMarshaler.
func (k FrontendKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *FrontendKind) UnmarshalText(text []byte) error { return parse(k, kinds, text) }
