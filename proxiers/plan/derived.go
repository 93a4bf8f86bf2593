package plan

import (
	"iter"
	"net/netip"
	"slices"
)

// The following verdicts for packets that Edgeway cannot forward are the same on every host.
const (
	// UnusedPortVerdict applies to packets to a ClusterIP's unused ports.
	UnusedPortVerdict = Reject
	// UnallocatedVerdict applies to packets to an address in Node.ServiceCIDRs that is neither a ClusterIP nor a host
	// address.
	UnallocatedVerdict = Drop
	// NotRelayedVerdict applies to packets to a NodePort on Node.LoopbackAddrs if their protocol is one of the
	// NotRelayedProtocols.
	NotRelayedVerdict = Reject
)

// NotRelayedProtocols returns the protocols that Edgeway does not relay on loopback (KEP-6032).
func NotRelayedProtocols() []Protocol { return []Protocol{UDP, SCTP} }

// Destinations iterates over the non-loopback addresses and ports where this host serves the ServicePort, each with its
// frontend. A NodePort has one destination for each address of the ServicePort's family in Node.NodePortAddrs.
func (s *ServicePort) Destinations(n *Node) iter.Seq2[netip.AddrPort, *Frontend] {
	return func(yield func(netip.AddrPort, *Frontend) bool) {
		for i := range s.Frontends {
			f := &s.Frontends[i]
			if f.Kind != NodePort {
				if !yield(netip.AddrPortFrom(f.Addr, f.Port), f) {
					return
				}
				continue
			}
			for _, a := range n.NodePortAddrs {
				if FamilyOf(a) == s.Family && !yield(netip.AddrPortFrom(a, f.Port), f) {
					return
				}
			}
		}
	}
}

// AllAddresses returns the prefix that contains all addresses of a family.
func AllAddresses(family Family) netip.Prefix {
	if family == IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// FilterByFamily returns the prefixes that belong to the family.
func FilterByFamily(prefixes []netip.Prefix, family Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if FamilyOf(p.Addr()) == family {
			out = append(out, p)
		}
	}
	return out
}

// NormalizePrefixes returns the prefixes in the form that a Plan requires: masked, sorted, and without prefixes
// contained in another prefix.
func NormalizePrefixes(prefixes []netip.Prefix) []netip.Prefix {
	if prefixes == nil {
		return nil
	}
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	kept := out[:0]
	for _, p := range out {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// ServicePortsWithoutEndpoint returns one ServicePort for each Service port that has no endpoint on any host. A Service
// port without an endpoint rejects connections in every family. The parameter list must be in plan order and contain
// all families of each Service port.
func ServicePortsWithoutEndpoint(list []*ServicePort) (out []*ServicePort) {
	for len(list) > 0 {
		first, rejects := list[0], true
		for len(list) > 0 && list[0].Name == first.Name {
			rejects = rejects && list[0].rejects()
			list = list[1:]
		}
		if rejects {
			out = append(out, first)
		}
	}
	return out
}

func (s *ServicePort) rejects() bool {
	for i := range s.Frontends {
		if slices.ContainsFunc(s.Frontends[i].Routes[:], func(r Route) bool { return r.Verdict != Reject }) {
			return false
		}
	}
	return true
}
