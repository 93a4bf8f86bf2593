package convert

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Validate returns an error if neither a conversion nor a source could have created o. Such an object can come from a
// damaged last-known state on disk. Edgeway cannot serve an object whose name, address family or Service name is
// invalid.
func Validate(o source.Object) error {
	var err error
	switch o := o.(type) {
	case *source.Service:
		err = checkService(o)
	case *source.EndpointSlice:
		err = checkSlice(o)
	case *source.Node:
		err = checkNode(o)
	case *source.ServiceCIDR:
		err = checkServiceCIDR(o)
	case *source.APIServer:
		err = checkAPIServer(o)
	case *source.Manifest:
		if o.Name == "" {
			err = errName
		}
	default:
		return fmt.Errorf("object of unexpected type %T", o)
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", o.Key(), err)
	}
	return nil
}

var (
	errName     = errors.New("a name is invalid")
	errAddress  = errors.New("an address is invalid")
	errPrefix   = errors.New("an address range is invalid")
	errPort     = errors.New("a port is invalid")
	errRepeated = errors.New("a duplicate")
	errFamily   = errors.New("an address family is invalid")
	errValue    = errors.New("a value is out of range")
)

func checkService(s *source.Service) error {
	if !isLabel(s.Namespace) || !isLabel(s.Name) {
		return errName
	}
	for _, list := range [][]netip.Addr{s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs} {
		if err := checkAddrs(list); err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(a netip.Addr) bool { return validateFrontend(a) != nil }) {
			return errAddress
		}
	}
	if n := len(s.ClusterIPs); n > 2 || n == 2 && plan.FamilyOf(s.ClusterIPs[0]) == plan.FamilyOf(s.ClusterIPs[1]) {
		return errFamily
	}
	if slices.ContainsFunc(s.BlockedFamilies, func(f plan.Family) bool { return !isFamily(f) }) {
		return errFamily
	}
	if isNoAffinity(s.Affinity) || slices.ContainsFunc(s.Weights, isNoWeight) {
		return errValue
	}
	if err := checkPrefixes(s.SourceRanges); err != nil {
		return err
	}
	return checkServicePorts(s.Ports)
}

func isNoAffinity(d time.Duration) bool {
	return d < 0 || d > maxAffinity*time.Second || d%time.Second != 0
}

// A valid weight selects either a Node or an address range.
func isNoWeight(w source.Weight) bool { return w.Weight == 0 || (w.Node == "") != w.Range.IsValid() }

func checkServicePorts(ports []source.ServicePort) error {
	for i := range ports {
		if p := &ports[i]; !isPort(p.Name, p.Protocol, p.Port) {
			return errPort
		}
	}
	if hasDuplicates(ports, func(p *source.ServicePort) string { return p.Name }) ||
		hasDuplicates(ports, func(p *source.ServicePort) protocolPort { return protocolPort{p.Protocol, p.Port} }) {
		return errRepeated
	}
	return nil
}

// hasDuplicates reports whether a key occurs more than once. hasDuplicates compares the keys of a short list pairwise,
// because a map would use more memory than the list.
func hasDuplicates[T any, K comparable](list []T, key func(*T) K) bool {
	const short = 16
	if len(list) <= short {
		for i := range list {
			for j := range i {
				if key(&list[i]) == key(&list[j]) {
					return true
				}
			}
		}
		return false
	}
	seen := make(set[K], len(list))
	for i := range list {
		if !seen.add(key(&list[i])) {
			return true
		}
	}
	return false
}

func checkSlice(s *source.EndpointSlice) error {
	if !isLabel(s.Namespace) || !isSubdomain(s.Name) || !isLabel(s.Service) {
		return errName
	}
	if !isFamily(s.Family) {
		return errFamily
	}
	for i := range s.Ports {
		if p := &s.Ports[i]; !isPort(p.Name, p.Protocol, p.Port) {
			return errPort
		}
	}
	if hasDuplicates(s.Ports, func(p *source.SlicePort) string { return p.Name }) {
		return errRepeated
	}
	if len(s.Endpoints) > maxEndpoints {
		return errValue
	}
	return checkEndpoints(s)
}

func checkEndpoints(s *source.EndpointSlice) error {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		switch {
		case !isAddr(e.Addr) || plan.FamilyOf(e.Addr) != s.Family:
			return errAddress
		case e.NodeName != "" && !isSubdomain(e.NodeName),
			slices.ContainsFunc(e.Nodes(), func(n string) bool { return !isSubdomain(n) }),
			slices.ContainsFunc(e.Zones(), func(z string) bool { return !isLabelValue(z) }):
			return errName
		}
	}
	if hasDuplicates(s.Endpoints, func(e *source.Endpoint) netip.Addr { return e.Addr }) {
		return errRepeated
	}
	return nil
}

func checkNode(n *source.Node) error {
	if !isSubdomain(n.Name) || n.Zone != "" && !isLabelValue(n.Zone) {
		return errName
	}
	if err := checkAddrs(n.Addresses); err != nil {
		return err
	}
	return checkPrefixes(n.PodCIDRs)
}

func checkServiceCIDR(c *source.ServiceCIDR) error {
	if !isSubdomain(c.Name) {
		return errName
	}
	if n := len(c.CIDRs); n > 2 || n == 2 && plan.FamilyOf(c.CIDRs[0].Addr()) == plan.FamilyOf(c.CIDRs[1].Addr()) {
		return errFamily
	}
	if slices.ContainsFunc(c.CIDRs, func(p netip.Prefix) bool { return slices.ContainsFunc(notUnicast, p.Overlaps) }) {
		return errPrefix
	}
	return checkPrefixes(c.CIDRs)
}

// checkAPIServer accepts loopback addresses, because the API server may run on this host.
func checkAPIServer(a *source.APIServer) error {
	if a.Name == "" {
		return errName
	}
	invalid := func(a netip.Addr) bool { return !a.IsValid() || a.Is4In6() || a.Zone() != "" }
	if slices.ContainsFunc(a.Addrs, invalid) || !slices.IsSortedFunc(a.Addrs, netip.Addr.Compare) ||
		slices.ContainsFunc(a.ProvenAddrs, func(p source.ServerAddr) bool { return invalid(p.Addr) }) {
		return errAddress
	}
	return nil
}

func checkAddrs(list []netip.Addr) error {
	if slices.ContainsFunc(list, func(a netip.Addr) bool { return !isAddr(a) }) {
		return errAddress
	}
	return nil
}

func checkPrefixes(list []netip.Prefix) error {
	if slices.ContainsFunc(list, func(p netip.Prefix) bool {
		return !p.IsValid() || p.Addr().Is4In6() || p != p.Masked()
	}) {
		return errPrefix
	}
	return nil
}

func isAddr(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == "" && validateUnicast(a) == nil
}

func isFamily(f plan.Family) bool { return f == plan.IPv4 || f == plan.IPv6 }

func isPort(name string, protocol plan.Protocol, port uint16) bool {
	known := protocol == plan.TCP || protocol == plan.UDP || protocol == plan.SCTP
	return known && port != 0 && (name == "" || isLabel(name))
}
