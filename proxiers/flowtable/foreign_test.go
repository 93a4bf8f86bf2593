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
	"edgeway/proxiers/internal/plantest"
	"edgeway/proxiers/iptables"
	"edgeway/proxiers/ipvs"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// listener is a follower that only notices changes, as on a kernel without a flowtable.
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
	l.follower, err = newFollower(silentEnv(t), Options{Shared: shared})
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

// foreign reports whether what a function did counts as a change by another program.
func (l listener) foreign(do func()) bool {
	l.Helper()
	l.monitor.Forget() // reads all notices that the kernel has sent
	l.settled(true)
	do()
	l.monitor.Forget()
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.due[anew].IsZero()
}

func (l listener) run(command string) {
	l.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		l.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// backends lists those that this kernel can run.
func backends(t *testing.T) (list []proxiers.Component) {
	t.Helper()
	all := append(iptables.Components(), nftables.Component(), ipvs.Component(),
		ebpf.ComponentIn(filepath.Join(os.TempDir(), fmt.Sprintf("edgeway-bpf-foreign-%d", os.Getpid()))))
	for _, b := range all {
		if b.Resolve != nil {
			continue // an alias
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

// Connections on the fast path stay there while a backend applies changes, and leave it when another program changes the tables that
// the backend shares with it.
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
			last := plantest.Plan(plantest.Node(), plantest.Web()...)
			apply(nil, last)
			for _, c := range plantest.Changes() {
				apply(nil, c.Prev)
				if l.foreign(func() { apply(c.Prev, c.Next) }) {
					t.Errorf("the change %q counts as another program's", c.Name)
				}
				last = c.Next
			}
			if l.foreign(func() { apply(nil, last) }) {
				t.Error("a full sync counts as another program's change")
			}
			l.wantKnownTables(b.Traits.SharedTables)
			for _, s := range b.Traits.SharedTables {
				if !l.foreign(func() { l.run(fmt.Sprintf("nft insert rule %s %s OUTPUT meta mark 1 drop", s.Family, s.Name)) }) {
					t.Errorf("another program's rule in the table %s %s does not count", s.Family, s.Name)
				}
			}
		})
	}
}

// wantKnownTables wants every table to be Edgeway's or shared.
func (l listener) wantKnownTables(shared []proxiers.SharedTable) {
	l.Helper()
	out, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		l.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line) // table FAMILY NAME
		known := slices.ContainsFunc(shared, func(s proxiers.SharedTable) bool { return s.Family == words[1] && s.Name == words[2] })
		if !known && !proxiers.OwnTable(words[1], words[2]) {
			l.Errorf("no list has the backend's %s", strings.TrimSpace(line))
		}
	}
}
