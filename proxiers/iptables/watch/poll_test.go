package watch

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
)

// idlePollWatcher returns a pollWatcher that is not running. The pollWatcher uses the parameter intact as its Compare
// function, and its Entries function returns 0 and *settled.
func idlePollWatcher(t testing.TB, settled *bool, intact func(Table) string) *pollWatcher {
	t.Helper()
	o := testOptions()
	o.Compare, o.Entries = intact, func(Table) (int, bool) { return 0, *settled }
	p, err := newPollWatcher(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (w *watchedHost) inspections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inspected
}

// After a change by another program, the pollWatcher reads the table once instead of every second.
func TestPollReadsChangedTableOnce(t *testing.T) {
	iptablestest.NewHost(t)
	w := newWatchedHost(t, xtables.Legacy)
	w.wantSilence(t, "nothing")
	before := w.inspections()
	w.wantSilence(t, "nothing")
	if n := w.inspections() - before; n != 0 {
		t.Errorf("without a change %d tables were read", n)
	}
	w.runForeign(t, "iptables -t nat -N DOCKER", "ip6tables -t filter -N DOCKER")
	for end := time.Now().Add(30 * time.Second); w.inspections()-before < 2 && time.Now().Before(end); {
		w.wantSilence(t, "chains of another")
	}
	w.wantSilence(t, "chains of another")
	if n := w.inspections() - before; n != 2 {
		t.Errorf("after a change of two tables %d were read", n)
	}
}

// A pollWatcher does not query a missing table, because a query causes the kernel to register the table.
func TestPollCreatesNoTable(t *testing.T) {
	iptablestest.NewHost(t)
	settled := true
	p := idlePollWatcher(t, &settled, func(Table) string { return "" })
	p.Forget()
	if reason := p.look(); reason != "" {
		t.Errorf("reported %q", reason)
	}
	for _, f := range families {
		if got, err := xtables.Tables(xtables.Legacy, f); err != nil || len(got) > 0 {
			t.Errorf("tables of %s afterwards: %s, %v", f, got, err)
		}
	}
}

// If another program changes a table during a full sync, the pollWatcher evaluates the change only after the sync.
func TestPollEvaluatesAfterFullSync(t *testing.T) {
	iptablestest.NewHost(t)
	settled := false
	inspected := map[Table]int{}
	p := idlePollWatcher(t, &settled, func(t Table) string {
		inspected[t]++
		return "the jump is gone"
	})
	iptablestest.Run(t, watchedRules, "iptables-legacy-restore")
	p.Forget()
	ownRule := func() (string, error) {
		return p.commit(func() error {
			iptablestest.Restore(t, xtables.Legacy, plan.IPv4, "nat", "-A KUBE-SVC-A -j RETURN")
			return nil
		})
	}
	// Another program changes the table after the full sync has read it.
	iptablestest.Run(t, "", "iptables-legacy", "-t", "nat", "-F", "PREROUTING")
	for range 3 {
		if got, err := ownRule(); got != "" || err != nil {
			t.Errorf("before the state is settled: %q, %v", got, err)
		}
	}
	settled = true
	if got, err := ownRule(); got != "the jump is gone" || err != nil {
		t.Errorf("reported %q, %v", got, err)
	}
	if len(inspected) != 1 {
		t.Errorf("tables read: %v, want only nat of IPv4", inspected)
	}
	if got := p.look(); got != "" {
		t.Errorf("reported twice: %q", got)
	}
	p.Forget()
	if got := p.look(); got != "" {
		t.Errorf("after a new full sync has begun: %q", got)
	}
}

func TestPollReportsRemovedTable(t *testing.T) {
	iptablestest.NewHost(t)
	gone, settled := Table{plan.IPv4, "edgeway-none"}, true
	var inspected []Table
	p := idlePollWatcher(t, &settled, func(t Table) string {
		inspected = append(inspected, t)
		return "gone"
	})
	if _, err := p.read(gone); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOPROTOOPT) {
		t.Errorf("state of a table that does not exist: %v", err)
	}
	p.lastStates[gone] = observation{}
	if got := p.look(); got != "gone" || len(inspected) != 1 || inspected[0] != gone {
		t.Errorf("reported %q after a look at %v", got, inspected)
	}
}

func TestFailedRestoreLeavesTableSuspect(t *testing.T) {
	iptablestest.NewHost(t)
	settled := false
	p := idlePollWatcher(t, &settled, func(Table) string { return "" })
	refused := errors.New("refused")
	iptablestest.Run(t, watchedRules, "iptables-legacy-restore")
	p.Forget()
	_, err := p.commit(func() error {
		iptablestest.Restore(t, xtables.Legacy, plan.IPv4, "nat", "-F PREROUTING")
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if got := p.changedTables(); len(got) != 1 || got[0] != (Table{plan.IPv4, "nat"}) {
		t.Errorf("suspect are %v, want nat of IPv4", got)
	}
}

func BenchmarkPoll(b *testing.B) {
	iptablestest.NewHost(b)
	settled := false
	p := idlePollWatcher(b, &settled, func(Table) string { return "" })
	err := p.RunCommit(1, true, func() error {
		for _, f := range families {
			iptablestest.Run(b, manyChains(5000, ":KUBE-SVC-%d - [0:0]"),
				iptablestest.ProgramName(xtables.Legacy, f)+"-restore", "--noflush")
			iptablestest.Restore(b, xtables.Legacy, f, "filter", ":KUBE-SERVICES - [0:0]")
		}
		return nil
	})
	if err != nil || len(p.lastStates) != 4 {
		b.Fatal(err, p.lastStates)
	}
	for b.Loop() {
		if suspects := p.changedTables(); len(suspects) != 0 {
			b.Fatal(suspects)
		}
	}
}

// If a program exits successfully but does not apply its input, commit returns ErrNoEffect.
func TestPollRestoreWithoutEffect(t *testing.T) {
	iptablestest.NewHost(t)
	o := testOptions()
	ours, settled := 0, false
	o.Entries = func(table Table) (int, bool) {
		if table == (Table{plan.IPv4, "nat"}) {
			return ours, settled
		}
		return 0, true
	}
	o.Compare = func(Table) string { return "" }
	p, err := newPollWatcher(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	p.Forget()
	nothing := func() error { ours, settled = 50, true; return nil }
	if _, err := p.commit(nothing); !errors.Is(err, netlink.ErrNoEffect) {
		t.Errorf("a first restore: %v, want %v", err, netlink.ErrNoEffect)
	}
	ours, settled = 0, false
	p.Forget()
	write := func() error {
		ours, settled = 3, true
		iptablestest.Restore(t, xtables.Legacy, plan.IPv4, "nat", ":KUBE-X - [0:0]\n-A KUBE-X -j RETURN")
		return nil
	}
	if reason, err := p.commit(write); reason != "" || err != nil {
		t.Errorf("a restore: %q, %v", reason, err)
	}
	if _, err := p.commit(func() error { ours = 4; return nil }); !errors.Is(err, netlink.ErrNoEffect) {
		t.Errorf("a later restore: %v, want %v", err, netlink.ErrNoEffect)
	}
}
