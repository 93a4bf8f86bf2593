package nfttable

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// newTable returns a table in a new network namespace. The goroutine stays locked to its thread, so the thread and the
// namespace disappear after the test.
func newTable(t *testing.T) *Table {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (the test needs root): %v", err)
	}
	table, err := New(testSchema(), proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: []plan.Family{plan.IPv4, plan.IPv6},
		MasqueradeBit: 14, Drift: func(string) {}, Progress: func(int, int) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return table
}

func nft(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nft", "--stateless", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	return string(out)
}

func differences(t *testing.T, table *Table, next *plan.Plan) (added, deleted []string) {
	t.Helper()
	c, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	refs := newReferences()
	table.addReferences(refs, next)
	differing, err := table.compare(c, refs, next)
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(table.renderer, refs, time.Time{})
	if err := b.reconcile(differing, next); err != nil {
		t.Fatal(err)
	}
	text := func(lists [2][][]Entry) (lines []string) {
		for _, ofFamily := range lists {
			for i, list := range ofFamily {
				for _, e := range list {
					set := &table.Sets[i]
					lines = append(lines, set.Name+" "+
						string(e.appendValue(append(set.appendKey(nil, &e.Element), ' '))))
				}
			}
		}
		return lines
	}
	return text(b.added), text(b.deleted)
}

// The kernel returns elements of every kind exactly as Edgeway wrote them, and a full sync finds exactly the elements
// that differ.
func TestReadBack(t *testing.T) {
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	if added, deleted := differences(t, table, next); len(added)+len(deleted) != 0 {
		t.Errorf("of what was just written differ: %q and %q", added, deleted)
	}
	number := string(newReferences().number(ObjectID{plan.IPv4, ChainObject, "of-2"}).append(nil))
	one := "frontends 10.96.0.1 . tcp . 80 " + number
	for _, c := range []struct{ script, added, deleted string }{
		{"delete element ip T frontends { 10.96.0.1 . tcp . 80 }; add element ip T frontends { 10.96.0.1 . tcp . 80 : " + number + " }", one, one},
		{"delete element ip T frontends { 10.96.0.1 . tcp . 80 }; add element ip T frontends { 10.96.0.1 . tcp . 80 comment \"other/one\" : " + number + " }", one, one},
		{"delete element ip T frontends { 10.96.0.1 . tcp . 80 }; add element ip T frontends { 10.96.0.1 . tcp . 80 comment \"default/one\" : " + number + " }", "", ""},
		{"add element ip T frontends { 10.96.0.9 . udp . 53 : 1:2 }", "", "frontends 10.96.0.9 . udp . 53 1:2"},
		{"delete element ip T slots { 10.96.0.1 . 80 . 1 }", "slots 10.96.0.1 . 80 . 1 10.244.1.2 . 8081", ""},
		{"delete element ip6 T peers { tcp . fd00:1::1 . 8080 }", "peers tcp . fd00:1::1 . 8080 goto note-six", ""},
		{"add element ip T allowed { 81 . 10.1.0.0/16 }", "", "allowed 81 . 10.1.0.0/16"},
		{"delete element ip6 T allowed { 80 . fd00:2::/61 }", "allowed 80 . fd00:2::/61 ", ""},
		{"add element ip6 T hosts { fd00::9 }", "", "hosts fd00::9 "},
		{
			"delete element ip T slots { 10.96.0.1 . 80 . 1 }; add element ip T slots { 10.96.0.1 . 80 . 1 : 10.244.1.9 . 8081 }",
			"slots 10.96.0.1 . 80 . 1 10.244.1.2 . 8081", "slots 10.96.0.1 . 80 . 1 10.244.1.9 . 8081",
		},
		{"delete element ip6 T hosts { fd00::1 }; add element ip6 T hosts { fd00::9 }", "hosts fd00::1 ", "hosts fd00::9 "},
	} {
		nft(t, strings.ReplaceAll(c.script, " T ", " "+table.Table+" "))
		added, deleted := differences(t, table, next)
		if strings.TrimSpace(strings.Join(added, "\n")) != strings.TrimSpace(c.added) ||
			strings.TrimSpace(strings.Join(deleted, "\n")) != strings.TrimSpace(c.deleted) {
			t.Errorf("%s: added %q, deleted %q", c.script, added, deleted)
		}
		if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
			t.Fatal(err)
		}
	}
}

// Maintain deletes a chain and its map in one transaction, a minute after their last use.
func TestTendSweepsIdleObjects(t *testing.T) {
	table, next := newTable(t), testPlan()
	none := &plan.Plan{Node: next.Node}
	for _, change := range []proxiers.Change{proxiers.NewChange(nil, next), proxiers.NewChange(next, none)} {
		if err := table.Apply(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Maintain(t.Context()); err != nil || len(table.refs.idleObjects) != 6 {
		t.Fatalf("error %v, %d objects are idle, want 3 in each family", err, len(table.refs.idleObjects))
	}
	for id, idle := range table.refs.idleObjects {
		table.refs.idleObjects[id] = idleness{idle.since.Add(-table.IdleTimeout), idle.intact}
	}
	if due := table.Due(); due.After(time.Now()) {
		t.Errorf("due at %s", due)
	}
	if err := table.Maintain(t.Context()); err != nil || !table.Due().IsZero() {
		t.Errorf("error %v, due at %s", err, table.Due())
	}
	if state := nft(t, "list ruleset"); strings.Contains(state, "note-") || strings.Contains(state, "clients-") ||
		!strings.Contains(state, "chain misses") {
		t.Errorf("what is left:\n%s", state)
	}
}

// A change to Node.PodInterfaces changes the rules, and therefore causes a full sync.
func TestRuleChangeTriggersFullSync(t *testing.T) {
	table, next := newTable(t), testPlan()
	node := *next.Node
	node.PodInterfaces = []string{"veth*"}
	other := &plan.Plan{Node: &node, Services: next.Services}
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); err != nil {
		t.Fatal(err)
	}
	nft(t, "flush chain ip "+table.Table+" misses")
	if err := table.Apply(t.Context(), proxiers.NewChange(next, other)); err != nil {
		t.Fatal(err)
	}
	if state := nft(t, "list chain ip "+table.Table+" misses"); !strings.Contains(state, "@hosts") {
		t.Errorf("rules are not written anew:\n%s", state)
	}
}

func standIn(t *testing.T, script string) {
	t.Helper()
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "nft"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":/usr/sbin:/usr/bin:/sbin:/bin")
}

// If the kernel kills nft, or nft runs out of memory, the probe's error does not wrap ErrUnsupported. An error that
// wraps ErrUnsupported causes Edgeway to use another backend until the next reload. If nft rejects a rule or fails an
// assertion, the error wraps ErrUnsupported.
func TestProbeWithKilledNFT(t *testing.T) {
	const version = "case $1 in --version) echo nftables v1.0.6; exit;; esac\ncat >/dev/null\n"
	for _, c := range []struct {
		script      string
		unsupported bool
	}{
		{"kill -KILL $$\n", false},
		{version + "kill -KILL $$\n", false},
		{version + "echo 'netlink: Error: Could not process rule: Cannot allocate memory' >&2; exit 1\n", false},
		{version + "echo 'Error: syntax error' >&2; exit 1\n", true},
		{version + "kill -ABRT $$\n", true},
		{"exit 1\n", true},
	} {
		standIn(t, c.script)
		err := Probe(t.Context(), testSchema(), testPlan())
		if err == nil || errors.Is(err, proxiers.ErrUnsupported) != c.unsupported {
			t.Errorf("%q: %v", c.script, err)
		}
	}
}

func TestNFTWithoutEffect(t *testing.T) {
	standIn(t, "case $1 in --version) echo nftables v1.0.6;; esac\ncat >/dev/null\n")
	table, next := newTable(t), testPlan()
	if err := table.Apply(t.Context(), proxiers.NewChange(nil, next)); !errors.Is(err, netlink.ErrNoEffect) {
		t.Errorf("error %v, want %v", err, netlink.ErrNoEffect)
	}
}

// Apply returns even if nft's child process never closes the pipes.
func TestNFTWithHungChild(t *testing.T) {
	standIn(t, "case $1 in --version) echo nftables v1.0.6;; esac\ncat >/dev/null\n[ $1 = --version ] || [ $1 = --check ] || { sleep 60 & sleep 60; }\n")
	table, next := newTable(t), testPlan()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := table.Apply(ctx, proxiers.NewChange(nil, next))
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 30*time.Second {
		t.Errorf("error %v after %s", err, took)
	}
}

// When the context is done, Edgeway kills nft, whatever command nft is running.
func TestHungNFT(t *testing.T) {
	table := newTable(t)
	nft(t, "add table ip "+table.Table)
	standIn(t, "exec sleep 120\n")
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"probe", func(ctx context.Context) error { return Probe(ctx, testSchema(), testPlan()) }},
		{"clean-up", func(ctx context.Context) error { return Cleanup(ctx, table.Table) }},
		{"sync", func(ctx context.Context) error { // this case must be last, because it uses a new namespace
			return newTable(t).Apply(ctx, proxiers.NewChange(nil, testPlan()))
		}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start := time.Now()
		err := c.run(ctx)
		cancel()
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, proxiers.ErrUnsupported) || took > time.Minute {
			t.Errorf("%s: error %v after %s", c.name, err, took)
		}
	}
}

// If nft is unusable, the probe's error suggests a fix.
func TestProbeSuggestsFix(t *testing.T) {
	for script, want := range map[string]string{
		"echo 'nftables v1.0.2 (Lester Gooch)'": "or set another proxy.backend",
		"case $1 in --version) echo nftables v1.0.6;; *) echo 'netlink: Error: cache initialization failed: Operation not permitted' >&2; exit 1;; esac": "CAP_NET_ADMIN",
		"case $1 in --version) echo nftables v1.0.6;; *) echo 'Error: syntax error' >&2; exit 1;; esac":                                                  "rejects a rule",
		"exit 127": "exit status 127",
	} {
		standIn(t, script+"\n")
		if err := Probe(t.Context(), testSchema(), testPlan()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestProbeWithoutNFT(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Probe(t.Context(), testSchema(), testPlan())
	if !errors.Is(err, proxiers.ErrUnsupported) || !strings.Contains(err.Error(), "install the nftables package") {
		t.Error(err)
	}
}
