package nfttable

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/internal/plantest"
	"edgeway/proxiers/plan"
)

// changed is testPlan, in which a ServicePort has another endpoint.
func changed(p *plan.Plan, endpoints ...string) *plan.Plan {
	i := slices.IndexFunc(p.Services, func(svc *plan.ServicePort) bool { return svc.Name.Name == "one" })
	var list []plan.Endpoint
	for _, e := range endpoints {
		list = append(list, plantest.Endpoint(e))
	}
	return plantest.WithEndpoints(p, i, list...)
}

// mustHave wants the elements of a plan in the kernel, and nothing else.
func mustHave(t *testing.T, table *Table, next *plan.Plan) {
	t.Helper()
	if added, deleted := differences(t, table, next); len(added)+len(deleted) != 0 {
		t.Errorf("the kernel lacks %q and has %q", added, deleted)
	}
}

// What does not fit into the socket is written by nft.
func TestBatchTooBigForTheSocket(t *testing.T) {
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	table.kernel.Room = 100
	other := changed(next, "10.244.1.1:8080", "10.244.1.3:8080")
	if err := table.Apply(t.Context(), proxiers.NewChange(next, other)); err != nil {
		t.Fatal(err)
	}
	mustHave(t, table, other)
}

// What the kernel refuses by netlink, and takes from nft, is written by nft from then on. The nft of this test makes
// room for the element.
func TestRefusedByNetlinkAlone(t *testing.T) {
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	nft(t, "add element ip "+table.Table+" peers { tcp . 10.244.1.3 . 8080 : accept }")
	table.watcher.Forget()
	nftPath, done := table.nft.path, filepath.Join(t.TempDir(), "done")
	standIn(t, "mkdir '"+done+"' && '"+nftPath+"' delete element ip "+table.Table+" peers '{ tcp . 10.244.1.3 . 8080 }'\nexec '"+nftPath+"' \"$@\"\n")
	found, err := findNFT()
	if err != nil {
		t.Fatal(err)
	}
	table.nft = found
	more := changed(next, "10.244.1.1:8080", "10.244.1.3:8080")
	if err := table.Apply(t.Context(), proxiers.NewChange(next, more)); err != nil {
		t.Fatal(err)
	}
	if table.wire != nil {
		t.Error("netlink is still in use")
	}
	mustHave(t, table, more)
	if err := table.Apply(t.Context(), proxiers.NewChange(more, next)); err != nil {
		t.Fatal(err)
	}
	mustHave(t, table, next)
}

// A refusal names those that have the element: its own, a shared one, or the chain that it leads to.
func TestBlame(t *testing.T) {
	table, p := newTable(t), testPlan()
	one := p.Services[slices.IndexFunc(p.Services, func(svc *plan.ServicePort) bool { return svc.Name.Name == "one" })]
	n := Needs{refs: newReferences()}
	n.of(&table.Schema, one)
	entries := slices.Clone(n.entries)
	for _, e := range n.shared {
		entries = append(entries, Entry{Element: e})
	}
	for _, o := range n.objects {
		if o.numbered {
			entries = append(entries, n.refs.numberEntry(table.Numbers, o.ObjectID))
		}
	}
	for _, e := range entries {
		err := table.blame(&refusedElement{Entry: e, cause: &netlink.Refused{Errno: 17}}, p)
		if r, ok := errors.AsType[*proxiers.Refusal](err); !ok || len(r.Services) != 1 || r.Services[0] != one {
			t.Errorf("%+v: %v", e, err)
		}
	}
	other := entries[0]
	other.Port++
	if err := table.blame(&refusedElement{Entry: other, cause: &netlink.Refused{Errno: 17}}, p); errors.Is(err, proxiers.ErrRefused) {
		t.Errorf("an element of nobody: %v", err)
	}
}

// Another program that writes into the table is answered by a full sync, in the midst of a partial one.
func TestTouchedTableIsAFullSync(t *testing.T) {
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	other := changed(next, "10.244.1.1:8080", "10.244.1.3:8080")
	nft(t, "add element ip "+table.Table+" hosts { 198.51.100.1 }\ndelete element ip "+table.Table+" slots { 10.96.0.1 . 80 . 0 }")
	if err := table.Apply(t.Context(), proxiers.NewChange(next, other)); err != nil {
		t.Fatal(err)
	}
	mustHave(t, table, other)
	if state := nft(t, "list set ip "+table.Table+" hosts"); strings.Contains(state, "198.51.100.1") {
		t.Errorf("what the other program wrote is still there:\n%s", state)
	}
}
