package serviceroutes

import (
	"net/netip"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// places holds a plan's ClusterIP ranges, and each frontend address outside these ranges.
type places struct {
	ranges []netip.Prefix
	// uses maps each address outside the ranges to its number of frontends. addrs holds the same addresses,
	// sorted.
	uses    map[netip.Addr]int
	singles []netip.Addr
	// left counts the attempts to add addresses beyond maxSingles. While overflow is not 0, the method use adds no
	// address, so the counts for the recorded addresses stay correct.
	left int
}

// maxSingles limits the routes to single addresses to about 5 MB of kernel memory. Users with more than maxSingles
// addresses can configure a range.
const maxSingles = 20_000

func newPlaces(p *plan.Plan) *places {
	out := &places{ranges: p.Node.ServiceCIDRs, uses: map[netip.Addr]int{}}
	for _, svc := range p.Services {
		out.each(svc, func(a netip.Addr) { out.use(a) })
	}
	out.singles = make([]netip.Addr, 0, len(out.uses))
	for a := range out.uses {
		out.singles = append(out.singles, a)
	}
	slices.SortFunc(out.singles, netip.Addr.Compare)
	return out
}

// move applies a plan change, and returns the added and removed addresses.
func (p *places) move(change proxiers.Change) (fresh, gone []netip.Addr) {
	drop := func(a netip.Addr) {
		if p.release(a) {
			i, _ := slices.BinarySearchFunc(p.singles, a, netip.Addr.Compare)
			p.singles = slices.Delete(p.singles, i, i+1)
			gone = append(gone, a)
		}
	}
	// Adding addresses first avoids removing an address that both plans contain.
	for _, svc := range change.Changed {
		p.each(svc, func(a netip.Addr) {
			if p.use(a) {
				i, _ := slices.BinarySearchFunc(p.singles, a, netip.Addr.Compare)
				p.singles = slices.Insert(p.singles, i, a)
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

func (p *places) each(svc *plan.ServicePort, visit func(netip.Addr)) {
	for i := range svc.Frontends {
		a := svc.Frontends[i].Addr
		if svc.Frontends[i].Kind != plan.NodePort &&
			!slices.ContainsFunc(p.ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			visit(a)
		}
	}
}

// use adds a frontend to an address and reports whether the address had no frontend before.
func (p *places) use(a netip.Addr) (first bool) {
	if p.uses[a] == 0 && (p.left > 0 || len(p.uses) >= maxSingles) {
		p.left++
		return false
	}
	p.uses[a]++
	return p.uses[a] == 1
}

// release removes a frontend from an address and reports whether the address has no frontend left. release ignores
// addresses that use did not add.
func (p *places) release(a netip.Addr) (last bool) {
	switch p.uses[a] {
	case 0:
		return false
	case 1:
		delete(p.uses, a)
		return true
	}
	p.uses[a]--
	return false
}

func (p *places) of(family plan.Family) []netip.Prefix {
	out := plan.OfFamily(p.ranges, family)
	for _, a := range p.singles {
		if plan.FamilyOf(a) == family {
			out = append(out, single(a))
		}
	}
	return out
}

func (p *places) touches(to netip.Prefix) bool {
	if slices.ContainsFunc(p.ranges, to.Overlaps) {
		return true
	}
	i, _ := slices.BinarySearchFunc(p.singles, to.Addr(), netip.Addr.Compare)
	return i < len(p.singles) && to.Contains(p.singles[i])
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
