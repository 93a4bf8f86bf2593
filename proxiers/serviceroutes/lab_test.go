package serviceroutes

import (
	"log/slog"
	"net/netip"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// lab is a network namespace in which a follower runs. The kernel removes the namespace when the test's thread exits.
type lab struct {
	*testing.T
	proxiers.Proxier
	wake   chan struct{}
	drift  chan string
	drifts int
	plan   *plan.Plan
}

const patience = 30 * time.Second

// twoLinks lists the ip(8) commands that create the host's two links: v0 with the plan's uplink addresses, and w0. The
// links have no link-local addresses, because the kernel adds the routes for such addresses only after duplicate
// address detection.
var twoLinks = []string{
	"link set lo up",
	"link add v0 type veth peer name v1", "link set v0 addrgenmode none", "link set v1 addrgenmode none",
	"link set v1 up", "link set v0 up",
	"link add w0 type veth peer name w1", "link set w0 addrgenmode none", "link set w1 addrgenmode none",
	"link set w1 up", "link set w0 up",
	"addr add 192.0.2.10/24 dev v0", "addr add 2001:db8:2::10/64 dev v0 nodad",
	"addr add 198.51.100.10/24 dev w0", "addr add 2001:db8:51::10/64 dev w0 nodad",
}

// ignoredTable is a routing table that the follower ignores.
const ignoredTable = 77

func newLab(t *testing.T, always bool, setup ...string) *lab {
	t.Helper()
	t.Parallel()           // the test spends most of its time waiting
	runtime.LockOSThread() // the thread is never unlocked, so it exits with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (this test needs root): %v", err)
	}
	l := &lab{T: t, wake: make(chan struct{}, 1), drift: make(chan string, 1), plan: testPlan()}
	for _, s := range slices.Concat(twoLinks, setup) {
		l.ip(s)
	}
	// Linux 6.18 adds the local route for an IPv6 address asynchronously.
	for _, a := range []string{"2001:db8:2::10", "2001:db8:51::10"} {
		for deadline := time.Now().Add(patience); !strings.Contains(l.ip("-6 route show table local"),
			"local "+a+" "); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("address %s: no local route", a)
			}
		}
	}
	var err error
	if l.Proxier, err = Component(always, []int{ignoredTable}).New(t.Context(), l.env()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (l *lab) env() proxiers.Env {
	return proxiers.Env{
		Logger: slog.New(slog.DiscardHandler), Families: []plan.Family{plan.IPv4, plan.IPv6},
		Wake: func() {
			select {
			case l.wake <- struct{}{}:
			default:
			}
		},
		Drift: func(reason string) { l.drift <- reason },
	}
}

// ip runs ip(8). The child process inherits the test thread's network namespace.
func (l *lab) ip(args string) string {
	l.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		l.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

func (l *lab) apply(next *plan.Plan, full bool) {
	l.Helper()
	prev := l.plan
	if full {
		prev = nil
	}
	if err := l.Apply(l.Context(), proxiers.NewChange(prev, next)); err != nil {
		l.Fatal(err)
	}
	l.plan = next
}

// routes lists Edgeway's routes in the form "10.96.0.0/16 dev v0 src 192.0.2.10".
func (l *lab) routes() []string {
	l.Helper()
	out := []string{}
	noise := regexp.MustCompile(` (scope link|metric \d+|pref medium)`)
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(l.ip(family + " route show table all proto 119")) {
			out = append(out, strings.Join(strings.Fields(noise.ReplaceAllString(line, "")), " "))
		}
	}
	return out
}

func (l *lab) settled(want ...string) {
	l.Helper()
	deadline := time.After(patience)
	for !slices.Equal(l.routes(), append([]string{}, want...)) {
		if !l.maintainWhenDue(deadline) {
			l.Fatalf("our routes: %q, want %q; all of them:\n%s%s", l.routes(), want, l.ip("route"), l.ip("-6 route"))
		}
	}
}

// maintainUntilIdle runs Maintain until the follower has handled all events.
func (l *lab) maintainUntilIdle() {
	l.Helper()
	for over := time.After(refreshInterval + 5*refreshDelay); l.maintainWhenDue(over); {
	}
}

// maintainWhenDue waits until deferred work is due and then runs Maintain, as the daemon's pipeline does.
// maintainWhenDue returns false if the channel over delivers a value first.
func (l *lab) maintainWhenDue(over <-chan time.Time) bool {
	l.Helper()
	tender := l.Proxier.(proxiers.Maintainer)
	var due <-chan time.Time
	if at := tender.Due(); !at.IsZero() {
		due = time.After(time.Until(at))
	}
	select {
	case <-l.wake:
	case <-due:
		if err := tender.Maintain(l.Context()); err != nil {
			l.Fatal(err)
		}
	case <-l.drift:
		l.drifts++
		l.apply(l.plan, true)
	case <-over:
		return false
	}
	return true
}

const (
	range4    = "10.96.0.0/16 dev v0 src 192.0.2.10"
	external4 = "203.0.113.7 dev v0 src 192.0.2.10"
	range6    = "fd00:96::/112 dev v0 src 2001:db8:2::10"
	external6 = "2001:db8:77::7 dev v0 src 2001:db8:2::10"
)

var allOfThem = []string{range4, external4, external6, range6}

func testPlan() *plan.Plan {
	return planOf(
		servicePort("web", 80, "10.96.0.10", "203.0.113.7"), servicePort("web-tls", 443, "10.96.0.10", "203.0.113.7"),
		servicePort("web6", 80, "fd00:96::10", "2001:db8:77::7"),
	)
}

func planOf(services ...*plan.ServicePort) *plan.Plan {
	p := &plan.Plan{
		Node: &plan.Node{
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
			Uplinks: []plan.Uplink{
				{Addr: netip.MustParseAddr("192.0.2.10"), Interface: "v0"}, {Addr: netip.MustParseAddr("2001:db8:2::10"), Interface: "v0"},
			},
		},
		Services: services,
	}
	slices.SortFunc(p.Services, (*plan.ServicePort).Compare)
	return p
}

func servicePort(name string, port uint16, clusterIP string, external ...string) *plan.ServicePort {
	svc := &plan.ServicePort{
		Name:   plan.ServicePortName{Namespace: "default", Name: name, Protocol: plan.TCP},
		Family: plan.FamilyOf(netip.MustParseAddr(clusterIP)),
		Frontends: []plan.Frontend{
			{Kind: plan.ClusterIP, Addr: netip.MustParseAddr(clusterIP), Port: port}, {Kind: plan.NodePort, Port: 30000 + port},
		},
	}
	for _, a := range external {
		svc.Frontends = append(svc.Frontends, plan.Frontend{
			Kind: plan.ExternalIP, Addr: netip.MustParseAddr(a),
			Port: port,
		})
	}
	slices.SortFunc(svc.Frontends, func(a, b plan.Frontend) int { return a.Compare(&b) })
	svc.Seal()
	return svc
}
