package serviceroutes

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// table is routes as the kernel chooses among them: the longest prefix, and of routes to the same place the lowest
// metric.
type table struct {
	best map[netip.Prefix]choice
	// bits are the lengths of the prefixes, the longest first.
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
			continue // the kernel passes over it
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

// leads reports whether packets to a place find a way by the table. A route to a part of the place does not count.
func (t *table) leads(to netip.Prefix) bool {
	for _, bits := range t.bits {
		if bits > to.Bits() {
			continue
		}
		wider, _ := to.Addr().Prefix(bits) // there are not more bits than the address has
		if c, ok := t.best[wider]; ok {
			return c.leads
		}
	}
	return false
}

// leads: the others reject (unreachable, blackhole, prohibit), or stand for none (throw).
func leads(r *netlink.Route) bool { return r.Type == unix.RTN_UNICAST || r.Type == unix.RTN_LOCAL }
