package tracker

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// Snapshot is the merged state of all sources at one moment. A Snapshot is immutable and shares unchanged data with the
// previous snapshot.
type Snapshot struct {
	// Generation increases by one with every snapshot.
	Generation uint64
	// Complete reports whether every source has listed its objects since the start. While Complete is false, the
	// last-known state replaces a source that has not listed its objects.
	Complete bool
	// Services is sorted by namespace, then name.
	Services []*Service
	// Changed lists the Services that differ from the previous snapshot, including deleted Services, sorted by
	// namespace and name. If All is true, any Service may differ and Changed is empty.
	Changed []Name
	All     bool
	// Node is the host's own Node, or nil if there is none.
	Node *source.Node
	// ServiceCIDRs is sorted by name. Consecutive snapshots share unchanged elements.
	ServiceCIDRs []*source.ServiceCIDR
	// APIServers lists the addresses of the API servers, sorted.
	APIServers []netip.Addr
	// APIPorts lists the ports of the API servers, sorted.
	APIPorts []uint16
	// Problems lists the faults of all objects, sorted by object.
	Problems []fault.Fault
	// Triggers lists the trigger times (EndpointSlice.TriggerTime) of the changes since the previous snapshot.
	Triggers []time.Time
}

// Name is the namespace and name of a Service.
type Name struct{ Namespace, Name string }

// Compare orders Names by namespace, then by name, like Snapshot.Services.
func (n Name) Compare(o Name) int {
	return cmp.Or(strings.Compare(n.Namespace, o.Namespace), strings.Compare(n.Name, o.Name))
}

// Service holds a Service and its EndpointSlices. A Snapshot contains a Service only while the Service object exists.
type Service struct {
	Spec *source.Service
	// Slices is sorted by name.
	Slices []*source.EndpointSlice
}

// Name returns the Service's namespace and name.
func (s *Service) Name() Name { return Name{s.Spec.Namespace, s.Spec.Name} }

func (s *Service) compareName(n Name) int { return s.Name().Compare(n) }

// Find returns the Service with this name, or nil if there is none. Find uses a binary search.
func (s *Snapshot) Find(n Name) *Service {
	i, ok := slices.BinarySearchFunc(s.Services, n, (*Service).compareName)
	if !ok {
		return nil
	}
	return s.Services[i]
}
