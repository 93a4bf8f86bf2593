package serviceroutes

import (
	"net/netip"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// destinations holds a plan's ClusterIP ranges, and each frontend address outside these ranges.
type destinations struct {
	ranges []netip.Prefix
	// frontendCounts maps each address outside the ranges to the number of frontends with this address. addrs holds the
	// same addresses, sorted.
	frontendCounts map[netip.Addr]int
	addrs          []netip.Addr
	// overflow counts the attempts to add addresses beyond maxAddrs. While overflow is not 0, addFrontend adds no new
	// address, so the counts of the recorded addresses stay correct.
	overflow int
}

// maxAddrs is the maximum number of routes to single addresses. At this limit, the routes need about 5 MB of kernel
// memory. If a cluster needs more routes, the user can configure a range instead.
const maxAddrs = 20_000

func newDestinations(p *plan.Plan) *destinations {
	out := &destinations{ranges: p.Node.ServiceCIDRs, frontendCounts: map[netip.Addr]int{}}
	for _, svc := range p.Services {
		out.each(svc, func(a netip.Addr) { out.addFrontend(a) })
	}
	out.addrs = make([]netip.Addr, 0, len(out.frontendCounts))
	for a := range out.frontendCounts {
		out.addrs = append(out.addrs, a)
	}
	slices.SortFunc(out.addrs, netip.Addr.Compare)
	return out
}

// update applies a plan change, and returns the added and removed addresses.
func (p *destinations) update(change proxiers.Change) (fresh, gone []netip.Addr) {
	drop := func(a netip.Addr) {
		if p.removeFrontend(a) {
			i, _ := slices.BinarySearchFunc(p.addrs, a, netip.Addr.Compare)
			p.addrs = slices.Delete(p.addrs, i, i+1)
			gone = append(gone, a)
		}
	}
	// update adds addresses before it removes any, so it never removes an address that both plans contain.
	for _, svc := range change.Changed {
		p.each(svc, func(a netip.Addr) {
			if p.addFrontend(a) {
				i, _ := slices.BinarySearchFunc(p.addrs, a, netip.Addr.Compare)
				p.addrs = slices.Insert(p.addrs, i, a)
				fresh = append(fresh, a)
			}
		})
	}
	for _, svc := range change.Changed {
		if before := change.Prev.Find(svc.Name, svc.Family); before != nil {
			p.each(before, drop)
		}
	}
	for _, svc := range change.Removed {
		p.each(svc, drop)
	}
	return fresh, gone
}

func (p *destinations) each(svc *plan.ServicePort, visit func(netip.Addr)) {
	for i := range svc.Frontends {
		a := svc.Frontends[i].Addr
		if svc.Frontends[i].Kind != plan.NodePort &&
			!slices.ContainsFunc(p.ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			visit(a)
		}
	}
}

// addFrontend counts a frontend at the given address, and reports whether the address is new.
func (p *destinations) addFrontend(a netip.Addr) (first bool) {
	if p.frontendCounts[a] == 0 && (p.overflow > 0 || len(p.frontendCounts) >= maxAddrs) {
		p.overflow++
		return false
	}
	p.frontendCounts[a]++
	return p.frontendCounts[a] == 1
}

// removeFrontend is the reverse of addFrontend and reports whether the address has no frontend left. removeFrontend
// ignores addresses that addFrontend did not add.
func (p *destinations) removeFrontend(a netip.Addr) (last bool) {
	switch p.frontendCounts[a] {
	case 0:
		return false
	case 1:
		delete(p.frontendCounts, a)
		return true
	}
	p.frontendCounts[a]--
	return false
}

func (p *destinations) of(family plan.Family) []netip.Prefix {
	out := plan.FilterByFamily(p.ranges, family)
	for _, a := range p.addrs {
		if plan.FamilyOf(a) == family {
			out = append(out, single(a))
		}
	}
	return out
}

func (p *destinations) touches(to netip.Prefix) bool {
	if slices.ContainsFunc(p.ranges, to.Overlaps) {
		return true
	}
	i, _ := slices.BinarySearchFunc(p.addrs, to.Addr(), netip.Addr.Compare)
	return i < len(p.addrs) && to.Contains(p.addrs[i])
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
