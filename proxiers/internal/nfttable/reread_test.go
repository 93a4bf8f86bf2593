package nfttable

import (
	"hash/maphash"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// Edgeway reads a set correctly while the kernel moves the elements to a larger or smaller hash table. On Linux 6.18,
// one in four dumps that read a 300-element set over a new socket during the move repeats some elements and omits
// others.
func TestReadWhileSetsResize(t *testing.T) {
	table := newTable(t)
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, plantest.Plan(plantest.Node()))); err != nil {
		t.Fatal(err)
	}
	set, all := &table.Sets[slots], []Entry(nil)
	for i := range 300 {
		key := Element{Family: plan.IPv4, Set: slots, Addr: plantest.Addr("10.96.0.1"), Port: 80, Slot: uint32(i)}
		all = append(all, Entry{key, Value{Endpoint: plantest.Endpoint("10.244.1.1:80").Addr}})
	}
	for range 50 {
		for _, step := range []struct {
			setChange
			left int
		}{
			{setChange{set, all, false}, 300},
			{setChange{set, all[30:], true}, 30},
			{setChange{set, all[:30], true}, 0},
		} {
			w := &netlink.Batch{}
			writeElements(w, table.Table, step.setChange)
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			if err := table.watcher.Commit(w, true); err != nil {
				t.Fatal(err)
			}
			s := checksummer{sets: table.Sets, seed: maphash.MakeSeed(), names: map[string]string{}}
			found, err := table.reread(c, &s, plan.IPv4, slots, checksum{})
			c.Close()
			if err != nil || len(found) != step.left {
				t.Fatalf("%d elements, error %v, want %d", len(found), err, step.left)
			}
		}
	}
}
