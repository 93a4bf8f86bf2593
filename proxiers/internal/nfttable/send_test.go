package nfttable

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// withEndpoints returns a copy of p with the given endpoints for the ServicePort "one".
func withEndpoints(p *plan.Plan, endpoints ...string) *plan.Plan {
	i := slices.IndexFunc(p.Services, func(svc *plan.ServicePort) bool { return svc.Name.Name == "one" })
	var list []plan.Endpoint
	for _, e := range endpoints {
		list = append(list, plantest.Endpoint(e))
	}
	return plantest.WithEndpoints(p, i, list...)
}

func mustHave(t *testing.T, table *Table, next *plan.Plan) {
	t.Helper()
	if added, deleted := differences(t, table, next); len(added)+len(deleted) != 0 {
		t.Errorf("the kernel lacks %q and has %q", added, deleted)
	}
}

// longPool returns a ServicePort with n endpoints at consecutive addresses. first is the offset of the first address
// from 10.1.0.0.
func longPool(n, first int) *plan.ServicePort {
	svc := plantest.Service("many", []plan.Frontend{plantest.ClusterIP("10.96.0.1", 80)})
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 1, byte((first + i) >> 8), byte(first + i)})
		svc.Pools[0] = append(svc.Pools[0], plan.Endpoint{Addr: netip.AddrPortFrom(addr, 8080)})
	}
	return svc
}

// If an endpoint list is longer than a chunk, one transaction adds elements, and the next transaction deletes the
// unused elements.
func TestLongListTakesTwoTransactions(t *testing.T) {
	table := newTable(t)
	table.chunkSize = 100
	prev, next := plantest.Plan(plantest.Node(), longPool(1000, 0)), plantest.Plan(plantest.Node(), longPool(500, 600))
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, prev)); err != nil {
		t.Fatal(err)
	}
	mustHave(t, table, prev)
	before, _, _ := table.Transactions()
	if err := table.Apply(t.Context(), proxiers.NewChange(prev, next)); err != nil {
		t.Fatal(err)
	}
	mustHave(t, table, next)
	if after, _, _ := table.Transactions(); after-before != 2 {
		t.Errorf("%d transactions by netlink, want 2", after-before)
	}
}

// If a change is too big for the socket, Apply returns ErrRefused so that the caller leaves out the ServicePort.
func TestBatchTooBigForSocket(t *testing.T) {
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	table.kernel.MaxBatchSize = 100
	other := withEndpoints(next, "10.244.1.1:8080", "10.244.1.3:8080")
	err := table.Apply(t.Context(), proxiers.NewChange(next, other))
	if !errors.Is(err, proxiers.ErrRefused) || !errors.Is(err, netlink.ErrTooBig) {
		t.Errorf("error %v, want %v and %v", err, proxiers.ErrRefused, netlink.ErrTooBig)
	}
}

// A full sync replaces ranges that overlap the plan's ranges, even if the sync needs many transactions.
func TestOverlappingRangesAreReplaced(t *testing.T) {
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	script := "flush set ip T allowed; add element ip T allowed { 80 . 10.2.0.0/16, 80 . 192.0.2.0/28 }; flush map ip T slots"
	nft(t, strings.ReplaceAll(script, " T ", " "+table.Table+" "))
	table.chunkSize = 1
	if _, err := table.repair(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	mustHave(t, table, next)
}

// A change to the table by another program, even during a partial sync, causes a full sync.
func TestTouchedTableTriggersFullSync(t *testing.T) {
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	other := withEndpoints(next, "10.244.1.1:8080", "10.244.1.3:8080")
	nft(t, "add element ip "+table.Table+" hosts { 198.51.100.1 }\ndelete element ip "+table.Table+
		" slots { 10.96.0.1 . 80 . 0 }")
	if err := table.Apply(t.Context(), proxiers.NewChange(next, other)); err != nil {
		t.Fatal(err)
	}
	mustHave(t, table, other)
	if state := nft(t, "list set ip "+table.Table+" hosts"); strings.Contains(state, "198.51.100.1") {
		t.Errorf("what the other program wrote is still there:\n%s", state)
	}
}
