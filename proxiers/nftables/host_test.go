package nftables

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// newHost moves the test into a network namespace of its own. The thread is never unlocked, so it ends
// with the test, and the namespace with it.
func newHost(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (the test needs root): %v", err)
	}
}

// drifts collects what the backend reports.
type drifts struct {
	mu      sync.Mutex
	reasons []string
	came    chan struct{}
}

func (d *drifts) report(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reasons = append(d.reasons, reason)
	select {
	case d.came <- struct{}{}:
	default:
	}
}

func (d *drifts) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.reasons)
}

// wait gives up after a second.
func (d *drifts) wait(t *testing.T) {
	t.Helper()
	select {
	case <-d.came:
	case <-time.After(time.Second):
		t.Fatal("no drift was reported within a second")
	}
}

// newProxier makes a backend in the test's namespace.
func newProxier(t *testing.T) (*proxier, *drifts) {
	t.Helper()
	d := &drifts{came: make(chan struct{}, 1)}
	p, err := New(t.Context(), proxiers.Options{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), MasqueradeBit: 14, Drift: d.report, Progress: func(int, int) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p.(*proxier), d
}

func apply(t *testing.T, p proxiers.Applier, prev, next *plan.Plan) {
	t.Helper()
	if err := p.Apply(t.Context(), proxiers.Change{Prev: prev, Next: next}); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

// nft runs a script, which must succeed, and gives what it prints.
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

// kernelState gives all rules and elements of all tables, with elements in order. It does not show
// objects that wait for their deletion.
func kernelState(t *testing.T, p *proxier) string {
	t.Helper()
	var b bytes.Buffer
	c, err := dialNetfilter()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, f := range p.renderer.families {
		for set := range numSets {
			var lines []string
			err := p.renderer.read(c, f, set, map[string]string{}, func(e *entry) {
				lines = append(lines, specs[set].name+" "+string(e.appendValue(append(e.appendKey(nil), " : "...))))
			})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(lines)
			b.WriteString(strings.Join(lines, "\n") + "\n")
		}
	}
	b.WriteString(strings.Join(ruleLines(p, nft(t, "list ruleset")), "\n"))
	return b.String()
}

// ruleLines gives each line of a listing behind its table and object, in the order of objects' names,
// without elements and without idle objects.
func ruleLines(p *proxier, listing string) []string {
	objects := map[string][]string{}
	var table, object string
	for line := range strings.Lines(listing) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "table "):
			table, object = words[1]+" "+words[2], ""
		case strings.HasPrefix(line, "\t}"):
			object = ""
		case strings.HasPrefix(line, "\t\telements = "):
			object = "" // to the end of the set
		case strings.HasPrefix(line, "\t\t") && object != "":
			objects[object] = append(objects[object], object+": "+strings.TrimSpace(line))
		case strings.HasPrefix(line, "\t") && len(words) == 3 && !isIdle(p, table, words[1]):
			object = table + " " + words[0] + " " + words[1]
			objects[object] = append(objects[object], object)
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		lines = append(lines, objects[name]...)
	}
	return lines
}

func isIdle(p *proxier, table, name string) bool {
	for id := range p.ledger.idle {
		if id.name == name && table == ipKeyword(id.family)+" "+tableName {
			return true
		}
	}
	return false
}

// firstDifference gives the first line in which two states differ; empty when they are equal.
func firstDifference(want, got string) string {
	if want == got {
		return ""
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		switch {
		case i >= len(w):
			return fmt.Sprintf("more: %q", g[i])
		case i >= len(g):
			return fmt.Sprintf("missing: %q", w[i])
		case w[i] != g[i]:
			return fmt.Sprintf("line %d is %q, want %q", i, g[i], w[i])
		}
	}
	return ""
}
