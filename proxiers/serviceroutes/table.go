package serviceroutes

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// table looks up routes like the kernel: the longest prefix wins, then the lowest metric.
type table struct {
	best map[netip.Prefix]choice
	// bits holds the prefix lengths, longest first.
	bits []int
}

type choice struct {
	metric int
	leads  bool
}

func newTable(routes []netlink.Route) *table {
	t := &table{best: map[netip.Prefix]choice{}}
	for i := range routes {
		r := &routes[i]
		if r.Flags&unix.RTNH_F_DEAD != 0 {
			continue // the kernel ignores dead routes
		}
		to := prefixOf(r.Dst)
		if known, ok := t.best[to]; !ok || r.Priority < known.metric {
			t.best[to] = choice{r.Priority, leads(r)}
		}
		if !slices.Contains(t.bits, to.Bits()) {
			t.bits = append(t.bits, to.Bits())
		}
	}
	slices.Sort(t.bits)
	slices.Reverse(t.bits)
	return t
}

// leads reports whether the table has a route that covers the whole destination.
func (t *table) leads(to netip.Prefix) bool {
	for _, bits := range t.bits {
		if bits > to.Bits() {
			continue
		}
		wider, _ := to.Addr().Prefix(bits) // bits is at most the length of the address
		if c, ok := t.best[wider]; ok {
			return c.leads
		}
	}
	return false
}

// leads reports whether packets reach a destination through the route. Other types of route reject packets
// (unreachable, blackhole, prohibit) or end the lookup in the table (throw).
func leads(r *netlink.Route) bool { return r.Type == unix.RTN_UNICAST || r.Type == unix.RTN_LOCAL }
