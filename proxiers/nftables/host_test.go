package nftables

import (
	"context"
	"errors"
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
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// newHost moves the test into a new network namespace. newHost never unlocks the thread, so the thread and the
// namespace disappear after the test.
func newHost(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (the test needs root): %v", err)
	}
}

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

func (d *drifts) wait(t *testing.T) {
	t.Helper()
	select {
	case <-d.came:
	case <-time.After(10 * time.Second):
		t.Fatal("no drift was reported")
	}
}

// testProxier starts a backend in the test's namespace. The idle time is zero, so Maintain deletes unused objects at
// once.
func testProxier(t *testing.T, changes ...func(*proxiers.Env)) (*proxier, *drifts) {
	t.Helper()
	d := &drifts{came: make(chan struct{}, 1)}
	env := proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: []plan.Family{plan.IPv4, plan.IPv6},
		MasqueradeBit: 14, Drift: d.report, Progress: func(int, int) {},
	}
	for _, change := range changes {
		change(&env)
	}
	s := schema(false)
	s.IdleTimeout = 0
	p := start(t, s, env)
	return p, d
}

func start(t *testing.T, s nfttable.Schema, env proxiers.Env) *proxier {
	t.Helper()
	p, err := newProxier(s, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func apply(t *testing.T, p proxiers.Applier, prev, next *plan.Plan) {
	t.Helper()
	if err := plantest.Validate(next); err != nil {
		t.Fatalf("the test's plan: %v", err)
	}
	if err := p.Apply(t.Context(), proxiers.NewChange(prev, next)); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func nft(t testing.TB, script string) string {
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

// kernelState deletes idle objects, and returns all rules and the sorted elements of all tables. Elements are in the
// kernel's format, as hexadecimal text.
func kernelState(t *testing.T, p *proxier) string {
	t.Helper()
	maintain(t, p)
	return kernelElements(t, p) + strings.Join(ruleLines(nft(t, "list ruleset")), "\n")
}

func maintain(t *testing.T, p *proxier) {
	t.Helper()
	if err := p.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if due := p.Due(); !due.IsZero() {
		t.Errorf("something is due at %s after what was idle is gone", due)
	}
}

func kernelElements(t *testing.T, p *proxier) string {
	t.Helper()
	return readUntilStable(t, func() string { return tellElements(t, p) })
}

// readUntilStable calls the function read until two consecutive results are equal. After a transaction, the kernel
// (6.18) may move a set to a hash table of another size. During the move, a dump that spans several datagrams repeats
// some elements and omits as many others.
func readUntilStable(t *testing.T, read func() string) string {
	t.Helper()
	before := read()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		again := read()
		if again == before {
			return again
		}
		before = again
	}
	t.Fatal("the kernel's state is another one each time that it is read")
	return ""
}

func tellElements(t *testing.T, p *proxier) string {
	t.Helper()
	c, err := netlink.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b strings.Builder
	for _, f := range p.families {
		for _, set := range schema(false).Sets {
			var lines []string
			eachElement(t, c, f, set.Name, func(raw []byte) {
				lines = append(lines,
					fmt.Sprintf("%s %x", set.Name, raw))
			})
			slices.Sort(lines)
			// While a set grows, the kernel (6.18) reports an element at both its old and its new position.
			b.WriteString(strings.Join(slices.Compact(lines), "\n") + "\n")
		}
	}
	return b.String()
}

func eachElement(t *testing.T, c *netlink.Conn, f plan.Family, set string, visit func(raw []byte)) {
	t.Helper()
	filter := netlink.AppendAttr(netlink.AppendAttr(nil, unix.NFTA_SET_ELEM_LIST_TABLE, tableName),
		unix.NFTA_SET_ELEM_LIST_SET, set)
	err := c.Dump(unix.NFT_MSG_GETSETELEM, netlink.Family(f), filter, func(m netlink.Message) error {
		for _, raw := range netlink.EachAttr(netlink.Attr(m.Attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			visit(raw)
		}
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
}

// ruleLines returns the lines of a listing, except the elements, sorted by object name. Each line begins with the names
// of its table and object.
func ruleLines(listing string) []string {
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
			object = "" // skip the rest of the set
		case strings.HasPrefix(line, "\t\t") && object != "":
			objects[object] = append(objects[object], object+": "+strings.TrimSpace(line))
		case strings.HasPrefix(line, "\t") && len(words) == 3:
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
