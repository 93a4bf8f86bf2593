package relay

import "testing"

// The memory of a peak does not stay, even when connections from then do.
func TestTableShrinksAfterAPeak(t *testing.T) {
	for _, stays := range []int{0, 5, 9_999} { // the one that is still open afterwards
		var tab table
		var conns []*conn
		for range 10_000 {
			conns = append(conns, tab.take())
		}
		for i, c := range conns {
			if i != stays {
				tab.release(c)
			}
		}
		kept := conns[stays]
		// What comes next takes the lowest places; when the old one ends, the slabs behind go.
		next := tab.take()
		if next.index >= 2*slabSize {
			t.Errorf("after the peak a connection gets place %d", next.index)
		}
		tab.release(kept)
		if n := len(tab.slabs); n > 2 || cap(tab.free) > 3*slabSize {
			t.Errorf("one connection has %d slabs and %d free places", n, cap(tab.free))
		}
		if tab.find(next.index, next.generation) != next || tab.find(kept.index, kept.generation) != nil {
			t.Error("events find the wrong connections")
		}
		for range 1000 { // no place is given twice
			tab.take()
		}
		seen := map[uint32]bool{}
		for _, slab := range tab.slabs {
			for i := range slab.conns {
				if c := &slab.conns[i]; c.open && (seen[c.index] || tab.at(c.index) != c) {
					t.Fatalf("place %d is not its connection's alone", c.index)
				} else if c.open {
					seen[c.index] = true
				}
			}
		}
		if len(seen) != 1001 {
			t.Errorf("%d connections are open, want 1001", len(seen))
		}
	}
}
