package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// Diff compares two plans, and returns the new and changed ServicePorts and the removed ServicePorts, both in plan
// order. Diff compares pointers first, because plans share unchanged ServicePorts. With 10,000 ServicePorts, Diff takes
// about 30 µs. A nil prev counts as an empty plan.
func Diff(prev, next *Plan) (changed, removed []*ServicePort) {
	var old []*ServicePort
	if prev != nil {
		old = prev.Services
	}
	cur := next.Services
	for len(old) > 0 && len(cur) > 0 {
		if old[0] == cur[0] {
			old, cur = old[1:], cur[1:]
			continue
		}
		switch c := old[0].Compare(cur[0]); {
		case c < 0:
			removed = append(removed, old[0])
			old = old[1:]
		case c > 0:
			changed = append(changed, cur[0])
			cur = cur[1:]
		default:
			if old[0].Digest != cur[0].Digest {
				changed = append(changed, cur[0])
			}
			old, cur = old[1:], cur[1:]
		}
	}
	return append(changed, cur...), append(removed, old...)
}

// Find looks up the ServicePort with the given name and family by binary search, and returns nil if there is none.
func (p *Plan) Find(name ServicePortName, family Family) *ServicePort {
	if p == nil {
		return nil
	}
	i, ok := search(p.Services, name, family)
	if !ok {
		return nil
	}
	return p.Services[i]
}

// FindService looks up a Service's ServicePorts by binary search.
func (p *Plan) FindService(namespace, name string) []*ServicePort {
	if p == nil {
		return nil
	}
	compare := func(s *ServicePort, n ServicePortName) int {
		return cmp.Or(cmp.Compare(s.Name.Namespace, n.Namespace), cmp.Compare(s.Name.Name, n.Name))
	}
	service := ServicePortName{Namespace: namespace, Name: name}
	first, _ := slices.BinarySearchFunc(p.Services, service, compare)
	end := first
	for end < len(p.Services) && compare(p.Services[end], service) == 0 {
		end++
	}
	return p.Services[first:end]
}

// FindEndpoint looks up an endpoint in a sorted list by binary search.
func FindEndpoint(sorted []Endpoint, at netip.AddrPort) (e Endpoint, found bool) {
	i, found := slices.BinarySearchFunc(sorted, at,
		func(e Endpoint, at netip.AddrPort) int { return e.Addr.Compare(at) })
	if found {
		e = sorted[i]
	}
	return e, found
}
