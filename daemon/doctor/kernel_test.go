package doctor

import (
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// lab is a network namespace for one test. The namespace exists until the test's thread exits. The links v0 and v1 are
// the two ends of a veth pair.
type lab struct {
	testing.TB
	*Host
}

func newLab(t testing.TB, services ...*plan.ServicePort) *lab {
	t.Helper()
	runtime.LockOSThread() // the thread exits with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (this test needs root): %v", err)
	}
	h, _ := testHost(services...)
	l := &lab{t, &Host{Config: config.Default(), System: Kernel{}, MaxLookups: 100, Facts: h.Facts}}
	l.sh("ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v0 addrgenmode none && ip link set v1 addrgenmode none")
	l.sh("ip link set v1 up && ip link set v0 up && ip addr add 192.0.2.10/24 dev v0 && ip addr add fd00:2::10/64 dev v0 nodad")
	h.Plan.Node.HostAddrs = slices.Insert(h.Plan.Node.HostAddrs, 3, addr("fd00:2::10"))
	return l
}

// sh runs a command line in this thread's network namespace, which child processes inherit.
func (l *lab) sh(line string) {
	l.Helper()
	if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
		l.Fatalf("%s: %v: %s", line, err, out)
	}
}

// checkFixes fails the test unless the check reports one finding for each of the given words, and the suggested
// commands resolve these findings.
func (l *lab) checkFixes(check string, words ...string) {
	l.Helper()
	i := slices.IndexFunc(Checks(), func(c Check) bool { return c.Name == check })
	look := func() []fault.Fault {
		found := RunChecks(l.Context(), l.Host, Checks()[i:i+1])
		return slices.DeleteFunc(found, func(f fault.Fault) bool { return f.Severity == fault.OK })
	}
	found := look()
	for _, w := range words {
		if !slices.ContainsFunc(found, func(f fault.Fault) bool { return strings.Contains(f.Message, w) }) {
			l.Errorf("%s: nothing found of %q: %+v", check, w, found)
		}
	}
	if len(found) != len(words) {
		l.Errorf("%s: %d findings, want %d: %+v", check, len(found), len(words), found)
	}
	for _, f := range found {
		router := "192.0.2.21"
		if strings.HasPrefix(f.Fix, "ip -6") {
			router = "fd00:2::21"
		}
		l.sh("ROUTER=" + router + "; " + f.Fix)
	}
	if left := look(); len(left) > 0 {
		l.Errorf("%s: after its commands: %+v", check, left)
	}
}

func TestPrintedFixesWork(t *testing.T) {
	nodePort := plan.Frontend{Kind: plan.NodePort, Port: 30080, Routes: forward(plan.ClusterPool)}
	l := newLab(t,
		servicePort("web", []plan.Frontend{
			frontend(plan.ClusterIP, "10.96.0.10"),
			frontend(plan.ExternalIP, "203.0.113.7"), nodePort,
		}, "10.244.1.11:8080", "10.244.1.12:8080"),
		servicePort("web6", []plan.Frontend{frontend(plan.ClusterIP, "fd00:96::10"), nodePort}, "[fd00:244::11]:8080"),
	)
	l.Plan.Node.NodePortAddrs = append(l.Plan.Node.NodePortAddrs, addr("fd00:2::10"))
	l.sh("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
	l.checkFixes("ip-forward", "net.ipv4.ip_forward is 0")
	l.sh("ip -6 route add default via fe80::1 dev v0 proto ra && sysctl -qw net.ipv6.conf.v0.accept_ra=1")
	l.checkFixes("ipv6-forward", "net.ipv6.conf.all.forwarding is 0")
	if n, err := l.number("/proc/sys/net/ipv6/conf/v0/accept_ra"); n != 2 || err != nil {
		t.Errorf("accept_ra is %d after the host has become a router, want 2 (%v)", n, err)
	}
	l.sh("ip -6 route del default")
	l.checkFixes("route-endpoints", "10.244.1.0/24, such as 10.244.1.11", "fd00:244::11")
	l.checkFixes("route-services", "the Service range 10.96.0.0/12", "the Service range fd00:96::/108",
		"the ExternalIP 203.0.113.7")
	for _, vip := range []string{"10.96.0.10", "fd00:96::10"} {
		if w, err := l.NextHop(addr(vip)); err != nil || w.Source.IsLoopback() || w.Source.Is4() != addr(vip).Is4() {
			t.Errorf("the way to %s afterwards: %s from %s, %v", vip, w, w.Source, err)
		}
	}
}

// The fix replaces a blackhole, unreachable or prohibit route, because the kernel does not add a second route to the
// same range.
func TestFixReplacesRejectingRoutes(t *testing.T) {
	l := newLab(t, servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")}, "192.0.2.21:8080"),
		servicePort("web6", []plan.Frontend{frontend(plan.ClusterIP, "fd00:96::10")}, "[fd00:2::21]:8080"))
	for kind, route := range map[string]string{
		"blackhole": "a blackhole route", "unreachable": "an unreachable route", "prohibit": "a prohibit route",
	} {
		l.sh("ip route replace " + kind + " 10.96.0.0/12 && ip -6 route replace " + kind + " fd00:96::/108")
		l.checkFixes("route-services", "10.96.0.0/12 ("+route, "fd00:96::/108 ("+route)
	}
}

func TestProhibitRouteAndDownLink(t *testing.T) {
	l := newLab(t)
	l.sh("ip route add unreachable 10.244.0.0/16 && ip route add prohibit 10.96.0.0/12")
	l.wantProblem("route-services", "a prohibit route")
	l.wantProblem("route-endpoints", "an unreachable route")
	l.sh("ip route del unreachable 10.244.0.0/16 && ip route add 10.244.0.0/16 dev v0 && ip link set v1 down")
	// The kernel may take a second to change the state of v0.
	l.sh("timeout 60 sh -c 'until ip link show v0 | grep -Eq \"state (LOWERLAYER)?DOWN\"; do sleep 0.1; done'")
	l.wantProblem("route-endpoints", "the link of v0 is down")
	if links, err := l.Links(); err != nil || !slices.Contains(links, "v0") || slices.Contains(links, "v1") ||
		slices.Contains(links, "lo") {
		t.Errorf("links %q, %v", links, err)
	}
}

// wantProblem fails the test unless the check reports exactly one problem. wantProblem does not run the suggested fix.
func (l *lab) wantProblem(check, words string) {
	l.Helper()
	wantFindings(l.TB, l.Host, check, "problem: … "+words)
}

func TestKernelReadAndWay(t *testing.T) {
	l := newLab(t)
	if _, err := l.Read("/proc/sys/net/none"); err == nil {
		t.Error("a setting that does not exist can be read")
	}
	if w, err := l.NextHop(netip.MustParseAddr("192.0.2.10")); err != nil || !w.Local {
		t.Errorf("the way to itself: %+v %v", w, err)
	}
}
