package plan

import (
	"iter"
	"net/netip"
	"slices"
)

// What happens to packets that no frontend matches. It is policy as Routes are, and the same on every host.
const (
	// OtherPort is for the ports of a ClusterIP that no Service uses.
	OtherPort = Reject
	// Unallocated is for the addresses of Node.ServiceCIDRs that are no ClusterIP and not the host's own.
	Unallocated = Drop
	// NotRelayed is for NodePorts of the protocols NotRelayedProtocols on Node.LoopbackAddrs.
	NotRelayed = Reject
)

// NotRelayedProtocols are those that have no relay on loopback (KEP-6032).
func NotRelayedProtocols() []Protocol { return []Protocol{UDP, SCTP} }

// Destinations gives each address and port that the ServicePort is reached at on this host, loopback left out, with
// its frontend: a NodePort has one destination for each of Node.NodePortAddrs of the family.
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

// OfFamily gives the prefixes of one family.
func OfFamily(prefixes []netip.Prefix, family Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if FamilyOf(p.Addr()) == family {
			out = append(out, p)
		}
	}
	return out
}

// Minimal gives the prefixes masked, sorted, and without those that lie in another one, as a Plan has them.
func Minimal(prefixes []netip.Prefix) []netip.Prefix {
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

// WithoutEndpoint returns the ports that have no endpoint in any family, on whatever host, so that their connections are
// rejected: the first ServicePort of each. The list is in plan order and holds all families of each port.
func WithoutEndpoint(list []*ServicePort) (out []*ServicePort) {
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

// rejects reports whether no connection to the ServicePort is forwarded, or left to another host.
func (s *ServicePort) rejects() bool {
	for i := range s.Frontends {
		if slices.ContainsFunc(s.Frontends[i].Routes[:], func(r Route) bool { return r.Verdict != Reject }) {
			return false
		}
	}
	return true
}
