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

// Snapshot is everything that the sources have said, merged, at one moment. It is immutable and
// shares what did not change with the snapshot before it.
type Snapshot struct {
	// Generation rises by one with every snapshot.
	Generation uint64
	// Complete says that every source has listed its objects since the start. Until then a last-known state stands in.
	Complete bool
	// Services is sorted by namespace, then name.
	Services []*Service
	// Changed names the Services that differ from the snapshot before, deleted ones included,
	// sorted by namespace and name. All set: everything may differ, Changed is empty.
	Changed []Name
	All     bool
	// Node is the own Node object; nil when there is none.
	Node *source.Node
	// ServiceCIDRs is sorted by name; the pointers are shared.
	ServiceCIDRs []*source.ServiceCIDR
	// APIServers are the addresses of the API servers, sorted.
	APIServers []netip.Addr
	// APIPorts are the ports of the API servers, sorted.
	APIPorts []uint16
	// Problems are the faults of all objects, sorted by object.
	Problems []fault.Fault
	// Triggers are the times of the changes (EndpointSlice.Triggered) that led from the snapshot
	// before to this one.
	Triggers []time.Time
}

// Name is a Service's namespace and name.
type Name struct{ Namespace, Name string }

// Compare orders by namespace, then name: the order of Snapshot.Services.
func (n Name) Compare(o Name) int {
	return cmp.Or(strings.Compare(n.Namespace, o.Namespace), strings.Compare(n.Name, o.Name))
}

// Service is a Service with its EndpointSlices. In a Snapshot it exists only while the Service itself does.
type Service struct {
	Spec *source.Service
	// Slices is sorted by name.
	Slices []*source.EndpointSlice
}

// Name gives the Service's namespace and name.
func (s *Service) Name() Name { return Name{s.Spec.Namespace, s.Spec.Name} }

func (s *Service) compareName(n Name) int { return s.Name().Compare(n) }

// Find gives the Service of this name by binary search; nil when there is none.
func (s *Snapshot) Find(n Name) *Service {
	i, ok := slices.BinarySearchFunc(s.Services, n, (*Service).compareName)
	if !ok {
		return nil
	}
	return s.Services[i]
}
