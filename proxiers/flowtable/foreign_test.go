package flowtable

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/ebpf"
	"edgeway/proxiers/iptables"
	"edgeway/proxiers/ipvs"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

// listener holds a follower that only watches for changes. The follower offloads no connections, as on a kernel without
// flowtables.
type listener struct {
	*testing.T
	*follower
}

func newListener(t *testing.T, shared []proxiers.SharedTable) listener {
	t.Helper()
	netlab.New(t, netlab.Options{InPlace: true})
	l := listener{T: t}
	l.run("nft flush ruleset")
	var err error
	l.follower, err = newFollower(silentEnv(t), shared)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func silentEnv(t *testing.T) proxiers.Env {
	return proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: both, MasqueradeBit: 14,
		Drift: func(string) {}, Wake: func() {}, Progress: func(int, int) {},
	}
}

// noticesChange calls the function do and reports whether the follower attributes the resulting changes to another
// program.
func (l listener) noticesChange(do func()) bool {
	l.Helper()
	l.watcher.Forget() // Forget reads all pending notifications from the kernel
	l.clearDeferred()
	do()
	l.watcher.Forget()
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.nextInspection.IsZero()
}

// causesRewrite calls the function do and reports whether the resulting changes would make the follower rewrite the
// nftables table.
func (l listener) causesRewrite(do func()) bool {
	l.Helper()
	if !l.noticesChange(do) {
		return false
	}
	relevant, err := l.hasRelevantChange()
	if err != nil {
		l.Fatal(err)
	}
	return relevant
}

func (l listener) run(command string) {
	l.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		l.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// backends returns the backends whose probes succeed on this kernel.
func backends(t *testing.T) (list []proxiers.Component) {
	t.Helper()
	all := append(iptables.Components(), nftables.Component(), ipvs.Component(),
		ebpf.ComponentIn(filepath.Join(os.TempDir(), fmt.Sprintf("edgeway-bpf-foreign-%d", os.Getpid()))))
	for _, b := range all {
		if b.Resolve != nil {
			continue // skip an alias of another backend
		}
		if err := b.Probe(t.Context()); err != nil {
			t.Logf("without %s: %v", b.Name, err)
			continue
		}
		list = append(list, b)
	}
	if len(list) < 3 {
		t.Fatalf("only %d backends can run here", len(list))
	}
	return list
}

// Another program's change to a shared nftables table ends offloading, but a backend's own changes do not.
func TestBackendsAreNotForeign(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.Name, func(t *testing.T) {
			l := newListener(t, b.Traits.SharedTables)
			backend, err := b.New(t.Context(), silentEnv(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := backend.Close(); err != nil {
					t.Error(err)
				}
				if err := b.Cleanup(t.Context(), silentEnv(t)); err != nil {
					t.Error(err)
				}
			}()
			apply := func(prev, next *plan.Plan) {
				t.Helper()
				if err := backend.Apply(t.Context(), proxiers.NewChange(prev, next)); err != nil {
					t.Fatal(err)
				}
			}
			last := plantest.Plan(plantest.Node(), plantest.SampleServices()...)
			apply(nil, last)
			for _, c := range plantest.Changes() {
				apply(nil, c.Prev)
				if l.noticesChange(func() { apply(c.Prev, c.Next) }) {
					t.Errorf("the change %q counts as another program's", c.Name)
				}
				last = c.Next
			}
			if l.noticesChange(func() { apply(nil, last) }) {
				t.Error("a full sync counts as another program's change")
			}
			l.wantKnownTables(b.Traits.SharedTables)
			for _, s := range b.Traits.SharedTables {
				if s.Name == "nat" {
					continue // packets of established connections do not traverse this table
				}
				if !l.causesRewrite(func() {
					l.run(fmt.Sprintf("nft insert rule %s %s FORWARD meta mark 1 drop",
						s.Family, s.Name))
				}) {
					t.Errorf("another program's rule in the table %s %s does not count", s.Family, s.Name)
				}
			}
		})
	}
}

// A change to another program's set or chain is relevant only if forwarded packets reach a rule that uses the set or
// chain.
func TestForeignRules(t *testing.T) {
	l := newListener(t, nil)
	script := `
table inet firewall {
	set banned { type ipv4_addr; }
	set unused { type ipv4_addr; }
	set blocked { type ipv4_addr; }
	set learned { type ipv4_addr; flags dynamic,timeout; timeout 1h; }
	set ofmap { type ipv4_addr; }
	map way { type ipv4_addr : verdict; }
	chain input1 { type filter hook input priority 0; jump bans; }
	chain bans { ip saddr @banned drop; }
	chain nat1 { type nat hook prerouting priority 0; ip saddr @unused return; }
	chain forward1 { type filter hook forward priority 0; ct state established jump more; }
	chain more { ip saddr @blocked drop; update @learned { ip saddr }; }
	chain loose { ip saddr @ofmap drop; }
}
`
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, step := range []struct {
		command string
		want    bool
	}{
		{"add element inet firewall banned { 192.0.2.1 }", false}, // fail2ban changes a set in this way
		{"delete element inet firewall banned { 192.0.2.1 }", false},
		{"add element inet firewall unused { 192.0.2.1 }", false},
		{"add element inet firewall blocked { 192.0.2.1 }", true},
		{"delete element inet firewall blocked { 192.0.2.1 }", true},
		{"add element inet firewall learned { 192.0.2.1 }", true},
		{"add element inet firewall ofmap { 192.0.2.1 }", false},
		{"add rule inet firewall bans ip saddr { 192.0.2.2, 192.0.2.3 } drop", false},
		{"add rule inet firewall nat1 ip daddr 192.0.2.2 tcp dport 80 dnat ip to 192.0.2.3", false},
		{"add rule inet firewall loose drop", false},
		{"add chain inet firewall new", false},
		{"add rule inet firewall more ip saddr { 192.0.2.2, 192.0.2.3 } drop", true},
		{"flush chain inet firewall bans", false},
		{"add chain inet firewall forward1 { policy drop; }", true},
		// The next rule looks up its target in a map, so forwarded packets may reach any chain.
		{"add element inet firewall way { 192.0.2.1 : goto loose }", false},
		{"add rule inet firewall forward1 ip saddr vmap @way", true},
		{"add element inet firewall ofmap { 192.0.2.9 }", true},
		{"add element inet firewall way { 192.0.2.2 : drop }", true},
		{"delete table inet firewall", true},
		{"add table inet other", true},
	} {
		if got := l.causesRewrite(func() { l.run("nft " + step.command) }); got != step.want {
			t.Errorf("%s: counts %v, want %v", step.command, got, step.want)
		}
	}
}

// If a program changes more than maxChanges objects, the follower considers every change relevant.
func TestForeignChangesAreBounded(t *testing.T) {
	l := newListener(t, nil)
	l.run("nft add table inet many")
	if l.causesRewrite(func() { l.run("nft add chain inet many one") }) {
		t.Error("one chain that nothing leads to counts")
	}
	if !l.causesRewrite(func() {
		for i := range maxChanges + 1 {
			l.run(fmt.Sprintf("nft add chain inet many c%d", i))
		}
	}) {
		t.Error("the bound was passed, and nothing counts")
	}
}

// wantKnownTables fails the test if the kernel has an nftables table that is neither Edgeway's nor a shared table.
func (l listener) wantKnownTables(shared []proxiers.SharedTable) {
	l.Helper()
	out, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		l.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line) // the fields are: table FAMILY NAME
		known := slices.ContainsFunc(shared, func(s proxiers.SharedTable) bool {
			return s.Family == words[1] &&
				s.Name == words[2]
		})
		if !known && !proxiers.IsOwnTable(words[1], words[2]) {
			l.Errorf("no list has the backend's %s", strings.TrimSpace(line))
		}
	}
}
