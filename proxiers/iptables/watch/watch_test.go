package watch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
)

var families = []plan.Family{plan.IPv4, plan.IPv6}

// testOptions returns Options that treat chains with the prefix "KUBE-S" as Edgeway's.
func testOptions() Options {
	return Options{
		Tables:     []Table{{plan.IPv4, xtables.NAT}, {plan.IPv4, xtables.Filter}, {plan.IPv6, xtables.NAT}, {plan.IPv6, xtables.Filter}},
		IsOwnChain: func(chain string) bool { return strings.HasPrefix(chain, "KUBE-S") },
		IsBuiltin: func(chain string) bool {
			return slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, chain)
		},
		Notify:  func(string) {},
		Compare: func(Table) string { return "" },
		Entries: func(Table) (int, bool) { return 0, false },
	}
}

// watchedHost is a host with a Watcher and with Edgeway's rules in both families.
type watchedHost struct {
	variant xtables.Variant
	watcher Watcher
	netns   *os.File
	reports chan string

	mu sync.Mutex
	// savedTables holds the output of iptables-save after the last restore, by table. savedTables is nil during a full
	// sync.
	savedTables map[Table]string
	inspected   int
}

// watchedRules holds the complete contents of the tables.
const watchedRules = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SVC-UNUSED - [0:0]
-A PREROUTING -m comment --comment edgeway -j KUBE-SERVICES
-A OUTPUT -m comment --comment edgeway -j KUBE-SERVICES
-A KUBE-SERVICES -p tcp -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SVC-A -j ACCEPT
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A FORWARD -m comment --comment edgeway -j KUBE-SERVICES
-A KUBE-SERVICES -p tcp -m tcp --dport 81 -j REJECT
COMMIT
`

// newWatchedHost must run in a new network namespace.
func newWatchedHost(t *testing.T, v xtables.Variant) *watchedHost {
	t.Helper()
	netns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netns.Close() })
	w := &watchedHost{variant: v, netns: netns, reports: make(chan string, 100)}
	o := testOptions()
	o.Notify = func(reason string) { w.reports <- reason }
	o.Compare, o.Entries = w.compare, w.entries
	if w.watcher, err = New(v, o); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(w.watcher.Run)
	t.Cleanup(func() {
		if err := w.watcher.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		running.Wait()
	})
	w.fullSync(t)
	return w
}

// save returns a table's contents without counters. Any thread may call save.
func (w *watchedHost) save(table Table) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	netns := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), w.netns.Fd())
	program := iptablestest.ProgramName(w.variant, table.Family) + "-save"
	out, err := exec.CommandContext(ctx, "nsenter", netns, "--", program, "-t", table.Name).Output()
	return iptablestest.RemoveDetails(string(out)), err
}

// compare implements Options.Compare, and compares only Edgeway's chains and rules.
func (w *watchedHost) compare(t Table) (reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inspected++
	now, err := w.save(t)
	if err != nil {
		return err.Error()
	}
	if owned(now) != owned(w.savedTables[t]) {
		return t.String() + " differs"
	}
	return ""
}

func (w *watchedHost) entries(t Table) (n int, settled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	saved, settled := w.savedTables[t]
	return 2*strings.Count(saved, "\n:KUBE-S") + strings.Count(saved, "\n-A KUBE-S"), settled
}

func owned(saved string) string {
	var b strings.Builder
	for line := range strings.Lines(saved) {
		if strings.Contains(line, "KUBE-S") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (w *watchedHost) settle(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.savedTables = map[Table]string{}
	for _, table := range testOptions().Tables {
		var err error
		if w.savedTables[table], err = w.save(table); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *watchedHost) fullSync(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	w.savedTables = nil
	w.mu.Unlock()
	w.watcher.Forget()
	for _, f := range families {
		w.own(t, 2, false, func() {
			iptablestest.Run(t, watchedRules, iptablestest.ProgramName(w.variant, f)+"-restore")
		})
	}
}

func (w *watchedHost) own(t *testing.T, tables int, big bool, change func()) {
	t.Helper()
	err := w.watcher.RunCommit(tables, big, func() error {
		change()
		w.settle(t)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runForeign runs commands as another program would. In a command, "iptables" and "ip6tables" stand for the variant's
// programs.
func (w *watchedHost) runForeign(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		if name := words[0]; name == "iptables" || name == "ip6tables" {
			words[0] += "-" + string(w.variant)
		}
		iptablestest.Run(t, "", words[0], words[1:]...)
	}
}

// wantReport fails the test unless the watcher reports drift within 30 seconds.
func (w *watchedHost) wantReport(t *testing.T, what string) {
	t.Helper()
	start := time.Now()
	select {
	case reason := <-w.reports:
		t.Logf("%s: %q after %v", what, reason, time.Since(start).Round(time.Millisecond))
	case <-time.After(30 * time.Second):
		t.Errorf("%s: no report", what)
	}
}

// wantSilence waits long enough for the watcher to detect a change, and fails the test if the watcher reports drift.
func (w *watchedHost) wantSilence(t *testing.T, what string) {
	t.Helper()
	patience := 50 * time.Millisecond
	if w.variant == xtables.Legacy {
		patience += pollInterval
	}
	select {
	case reason := <-w.reports:
		t.Errorf("%s: reported %q", what, reason)
	case <-time.After(patience):
	}
}

func TestDamageIsReported(t *testing.T) {
	damages := [][]string{
		{"iptables -t nat -F PREROUTING"},
		{"iptables -t nat -D PREROUTING -m comment --comment edgeway -j KUBE-SERVICES"},
		{"iptables -t nat -D OUTPUT 1"},
		{"iptables -t nat -F KUBE-SVC-A"},
		{"iptables -t nat -D KUBE-SERVICES 1"},
		{"iptables -t nat -A KUBE-SERVICES -j RETURN"},
		{"iptables -t nat -X KUBE-SVC-UNUSED"},
		{"iptables -t nat -N KUBE-SVC-MORE"},
		{"iptables -t filter -F FORWARD"},
		{"iptables -t filter -F", "iptables -t filter -X"},
		{"ip6tables -t nat -F PREROUTING"},
		{"ip6tables -t filter -F KUBE-SERVICES"},
		{"iptables -t nat -N DOCKER", "iptables -t nat -I PREROUTING -j DOCKER", "iptables -t nat -D PREROUTING 2"},
	}
	inNFT := [][]string{
		{"nft flush ruleset"},
		{"nft delete table ip nat"},
		{"nft delete table ip6 filter"},
		{"nft flush table ip filter"},
		{"nft flush chain ip nat PREROUTING"},
		{"nft flush chain ip nat KUBE-SERVICES"},
	}
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		w := newWatchedHost(t, v)
		here := damages
		if v == xtables.NFT {
			here = slices.Concat(damages, inNFT)
		}
		for _, lines := range here {
			w.runForeign(t, lines...)
			w.wantReport(t, strings.Join(lines, ", "))
			w.fullSync(t)
		}
		w.wantSilence(t, "after the last full sync")
	})
}

func TestDamageIsReportedOnce(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		w := newWatchedHost(t, v)
		w.runForeign(t, "iptables -t nat -F PREROUTING")
		w.wantReport(t, "a flush")
		w.runForeign(t, "iptables -t nat -F KUBE-SERVICES", "ip6tables -t filter -F")
		w.wantSilence(t, "more damage before the full sync")
	})
}

func TestForeignChangesAreNotReported(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		w := newWatchedHost(t, v)
		for _, lines := range [][]string{
			{"iptables -t nat -N DOCKER", "iptables -t nat -A DOCKER -i docker0 -j RETURN"},
			{"iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER", "iptables -t nat -I OUTPUT -j DOCKER"},
			{"iptables -t filter -N DOCKER-USER", "iptables -t filter -I FORWARD -j DOCKER-USER", "iptables -t filter -P FORWARD DROP"},
			{"iptables -t filter -N KUBE-FIREWALL", "iptables -t filter -A KUBE-FIREWALL -j DROP", "iptables -t filter -A OUTPUT -j KUBE-FIREWALL"},
			{"iptables -t mangle -N KUBE-KUBELET-CANARY", "iptables -t nat -N KUBE-KUBELET-CANARY", "ip6tables -t filter -N KUBE-KUBELET-CANARY"},
			{"iptables -t filter -F OUTPUT", "iptables -t filter -F KUBE-FIREWALL", "iptables -t filter -X KUBE-FIREWALL"},
			{"iptables -t nat -D OUTPUT -j DOCKER", "iptables -t nat -D PREROUTING 2", "iptables -t nat -F DOCKER", "iptables -t nat -X DOCKER"},
			{"iptables -t mangle -A PREROUTING -j ACCEPT", "iptables -t mangle -F", "iptables -t raw -A PREROUTING -j ACCEPT"},
			{"iptables -t nat -L -n", "ip6tables -t filter -S"},
		} {
			w.runForeign(t, lines...)
			w.wantSilence(t, strings.Join(lines, ", "))
		}
		w.runForeign(t, "iptables -t nat -F PREROUTING")
		w.wantReport(t, "damage after all that")
	})
}

func manyChains(n int, line string) string {
	var b strings.Builder
	b.WriteString("*nat\n")
	for i := range n {
		fmt.Fprintf(&b, line+"\n", i)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func TestOwnChangesAreNotReported(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		w := newWatchedHost(t, v)
		for _, big := range []bool{false, true} {
			for range 3 {
				w.own(t, 1, big, func() { iptablestest.Restore(t, v, plan.IPv4, "nat", "-A KUBE-SVC-A -j RETURN") })
				w.own(t, 1, big, func() {
					iptablestest.Restore(t, v, plan.IPv6, "nat", ":KUBE-SVC-A - [0:0]",
						"-A KUBE-SVC-A -j RETURN")
				})
			}
			w.own(t, 1, big, func() {
				iptablestest.Run(t, manyChains(3000, ":KUBE-SVC-%d - [0:0]"), "iptables-"+string(v)+"-restore",
					"--noflush")
			})
			w.own(t, 1, big, func() {
				iptablestest.Run(t, manyChains(3000, "-X KUBE-SVC-%d"), "iptables-"+string(v)+"-restore", "--noflush")
			})
			w.own(t, 2, big, func() { iptablestest.Run(t, watchedRules, "iptables-"+string(v)+"-restore") })
		}
		w.wantSilence(t, "own changes")
		w.runForeign(t, "iptables -t nat -F KUBE-SERVICES")
		w.wantReport(t, "damage after all that")
	})
}

// The watcher counts the changes during a restore to detect a change by another program, which may acquire the lock
// before the restore does.
func TestForeignChangeDuringRestore(t *testing.T) {
	const input = "*nat\n-A KUBE-SVC-A -j RETURN\nCOMMIT\n*filter\n:KUBE-SVC-%d%d - [0:0]\n-A KUBE-SERVICES -j KUBE-SVC-%[1]d%[2]d\nCOMMIT\n"
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		w := newWatchedHost(t, v)
		for i, c := range []struct {
			name    string
			big     bool
			foreign string
			want    bool
		}{
			{"nothing", false, "", false},
			{"damage", false, "iptables -t filter -F FORWARD", true},
			{"another program's chain", false, "iptables -t nat -N DOCKER-A", false},
			{"nothing again", false, "", false},
			{"big, nothing", true, "", false},
			{"big, damage", true, "iptables -t filter -F FORWARD", true},
		} {
			w.own(t, 2, c.big, func() {
				iptablestest.Run(t, fmt.Sprintf(input, i, 0), "iptables-"+string(v)+"-restore", "--noflush")
			})
			w.restoreDuringChange(t, c.big, c.foreign, fmt.Sprintf(input, i, 1))
			if c.want {
				w.wantReport(t, c.name)
				w.fullSync(t)
			} else {
				w.wantSilence(t, c.name)
			}
		}
	})
}

// restoreDuringChange passes RunCommit a function that restores both tables, records their contents, and then changes a
// table as another program would.
func (w *watchedHost) restoreDuringChange(t *testing.T, big bool, foreign, input string) {
	t.Helper()
	err := w.watcher.RunCommit(2, big, func() error {
		iptablestest.Run(t, input, "iptables-"+string(w.variant)+"-restore", "--noflush")
		w.settle(t)
		if foreign != "" {
			w.runForeign(t, foreign)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// RunCommit reports a change that another program made before the restore, even if Run has not detected it yet.
func TestDamageBeforeRestoreIsReported(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		for _, big := range []bool{false, true} {
			w := newWatchedHost(t, v)
			w.runForeign(t, "iptables -t nat -F PREROUTING")
			err := w.watcher.RunCommit(1, big, func() error {
				iptablestest.Restore(t, v, plan.IPv4, "nat", ":KUBE-SVC-A - [0:0]")
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-w.reports:
			default:
				t.Errorf("big %v: not reported", big)
			}
		}
	})
}
