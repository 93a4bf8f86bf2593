package nftables

import (
	"bytes"
	"context"
	"log/slog"
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
func newHost(t *testing.T) {
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
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
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
	defer c.close()
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
	state := nft(t, "list ruleset")
	var sections []string
	for _, section := range strings.Split(state, "\n\n") {
		name := strings.Fields(strings.TrimSpace(section))
		if len(name) > 1 && (name[0] == "chain" || name[0] == "map") && isIdle(p, name[1]) {
			continue
		}
		section, _, _ = strings.Cut(section, "elements = {")
		sections = append(sections, strings.TrimSpace(strings.ReplaceAll(section, "}", "")))
	}
	slices.Sort(sections)
	b.WriteString(strings.Join(sections, "\n"))
	return b.String()
}

func isIdle(p *proxier, name string) bool {
	for id := range p.ledger.idle {
		if id.name == name {
			return true
		}
	}
	return false
}
