package iptables

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/plantest"
	"edgeway/proxiers/plan"
)

// quietCanary does not run by itself. intact answers for all tables.
func quietCanary(t testing.TB, intact func(plan.Family, string) (string, bool)) *canary {
	t.Helper()
	w, err := newCanary(watchOptions{
		families: []plan.Family{plan.IPv4, plan.IPv6}, notify: func(string) {}, intact: intact,
		entries: func(plan.Family, string) (int, bool) { return 0, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w.(*canary)
}

func (w *watched) inspections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inspected
}

// A change of another program costs one look into the table, not one each second.
func TestCanaryReadsATableOnceForAChange(t *testing.T) {
	newHost(t)
	w := newWatched(t, legacy)
	w.wantSilence(t, "nothing")
	before := w.inspections()
	w.wantSilence(t, "nothing")
	if n := w.inspections() - before; n != 0 {
		t.Errorf("without a change %d tables were read", n)
	}
	w.foreign(t, "iptables -t nat -N DOCKER", "ip6tables -t filter -N DOCKER")
	w.wantSilence(t, "chains of another")
	w.wantSilence(t, "chains of another")
	if n := w.inspections() - before; n != 2 {
		t.Errorf("after a change of two tables %d were read", n)
	}
}

// To look at a table makes the kernel load and register it.
func TestCanaryMakesNoTable(t *testing.T) {
	newHost(t)
	c := quietCanary(t, func(plan.Family, string) (string, bool) { return "", true })
	c.forget()
	if reason := c.look(); reason != "" {
		t.Errorf("reported %q", reason)
	}
	if got := registeredTables(t); got != "IPv4: [], IPv6: []" {
		t.Errorf("tables afterwards: %s", got)
	}
}

// What others do while a full sync runs can be judged only when it is over.
func TestCanaryJudgesWhenTheStateIsSettled(t *testing.T) {
	newHost(t)
	reason, settled := "", false
	inspected := map[tableID]int{}
	c := quietCanary(t, func(f plan.Family, table string) (string, bool) {
		inspected[tableID{f, table}]++
		return reason, settled
	})
	run(t, watchedRules, "iptables-legacy-restore")
	c.forget()
	ownRule := func() (string, error) {
		return c.commit(func() error {
			restore(t, legacy, plan.IPv4, "nat", "-A KUBE-SVC-A -j RETURN")
			return nil
		})
	}
	run(t, "", "iptables-legacy", "-t", "nat", "-F", "PREROUTING") // after the full sync has read the table
	for range 3 {
		if got, err := ownRule(); got != "" || err != nil {
			t.Errorf("before the state is settled: %q, %v", got, err)
		}
	}
	reason, settled = "the jump is gone", true
	if got, err := ownRule(); got != reason || err != nil {
		t.Errorf("reported %q, %v; want %q", got, err, reason)
	}
	if len(inspected) != 1 {
		t.Errorf("tables read: %v, want only nat of IPv4", inspected)
	}
	if got := c.look(); got != "" {
		t.Errorf("reported twice: %q", got)
	}
	c.forget()
	if got := c.look(); got != "" {
		t.Errorf("after a new full sync has begun: %q", got)
	}
}

func TestCanaryMissesATableThatIsGone(t *testing.T) {
	newHost(t)
	gone := tableID{plan.IPv4, "edgeway-none"}
	var inspected []tableID
	c := quietCanary(t, func(f plan.Family, table string) (string, bool) {
		inspected = append(inspected, tableID{f, table})
		return "gone", true
	})
	if _, err := c.read(gone); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOPROTOOPT) {
		t.Errorf("state of a table that does not exist: %v", err)
	}
	c.known[gone] = sight{}
	if got := c.look(); got != "gone" || len(inspected) != 1 || inspected[0] != gone {
		t.Errorf("reported %q after a look at %v", got, inspected)
	}
}

func TestFailedRestoreLeavesTheTableSuspect(t *testing.T) {
	newHost(t)
	c := quietCanary(t, func(plan.Family, string) (string, bool) { return "", false })
	refused := errors.New("refused")
	run(t, watchedRules, "iptables-legacy-restore")
	c.forget()
	_, err := c.commit(func() error {
		restore(t, legacy, plan.IPv4, "nat", "-F PREROUTING")
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if got := c.differing(); len(got) != 1 || got[0] != (tableID{plan.IPv4, "nat"}) {
		t.Errorf("suspect are %v, want nat of IPv4", got)
	}
}

// BenchmarkCanary is one look at the four tables of 5,000 Services in which nothing has changed.
func BenchmarkCanary(b *testing.B) {
	newHost(b)
	c := quietCanary(b, func(plan.Family, string) (string, bool) { return "", true })
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		_, in := initial(f, plantest.Plan(plantest.Node(), plantest.Many(5000, 5)...))
		if err := c.own(len(in.parts), true, func() error { return testTools(b, legacy, f).restore(b.Context(), in.bytes()) }); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if suspects := c.differing(); len(suspects) != 0 {
			b.Fatal(suspects)
		}
	}
}

// A restore of ours changes the number of entries by what the backend says it wrote; else each would cost a look
// into the table.
func TestCanaryDoesNotReadBackWhatWeWrite(t *testing.T) {
	newHost(t)
	p := startProxier(t, legacy, func(reason string) { t.Errorf("reported %q", reason) })
	c := p.watcher.(*canary)
	c.mu.Lock()
	c.intact = func(f plan.Family, table string) (string, bool) {
		t.Errorf("%s of %s was read", table, f)
		return "", true
	}
	c.mu.Unlock()
	for _, change := range plantest.Changes() {
		apply(t, p, nil, change.Prev)
		apply(t, p, change.Prev, change.Next)
		c.mu.Lock()
		if len(c.known) != 4 {
			t.Errorf("%s: %d tables are watched, want 4", change.Name, len(c.known))
		}
		for id, s := range c.known {
			if !s.settled {
				t.Errorf("%s: %s of %s is not settled", change.Name, id.table, id.family)
			}
		}
		c.mu.Unlock()
	}
}
