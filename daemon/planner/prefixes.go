package planner

import (
	"net/netip"
	"slices"

	"edgeway/proxiers/plan"
)

// normalize gives the prefixes masked, sorted and without those that another one covers.
func normalize(prefixes []netip.Prefix) []netip.Prefix {
	if len(prefixes) == 0 {
		return nil
	}
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.Masked())
	}
	// A prefix that covers another one comes before it, and so do all between them.
	slices.SortFunc(out, netip.Prefix.Compare)
	kept := out[:0]
	for _, p := range out {
		if len(kept) == 0 || !kept[len(kept)-1].Contains(p.Addr()) {
			kept = append(kept, p)
		}
	}
	return kept
}

// ofFamily gives those of the family; the result is never shared with the argument.
func ofFamily(prefixes []netip.Prefix, family plan.Family) (out []netip.Prefix) {
	for _, p := range prefixes {
		if plan.FamilyOf(p.Addr()) == family {
			out = append(out, p)
		}
	}
	return out
}

func addrsOfFamily(addrs []netip.Addr, family plan.Family) (out []netip.Addr) {
	for _, a := range addrs {
		if plan.FamilyOf(a) == family {
			out = append(out, a)
		}
	}
	return out
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func sortAddrs(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func hasAddr(sorted []netip.Addr, a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return ok
}
