package serviceroutes

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func TestRoutesWithoutDefaultRoute(t *testing.T) {
	l := newLab(t, false)
	for _, a := range []string{"10.96.0.10", "203.0.113.7", "fd00:96::10", "2001:db8:77::7"} {
		if l.finds(a) != "" {
			t.Fatalf("there is a way to %s before", a)
		}
	}
	l.apply(testPlan(), true)
	l.settled(allOfThem...)
	for a, source := range map[string]string{
		"10.96.255.254": "192.0.2.10", "203.0.113.7": "192.0.2.10", "fd00:96::ffff": "2001:db8:2::10", "2001:db8:77::7": "2001:db8:2::10",
	} {
		if got := l.finds(a); got != source {
			t.Errorf("packets to %s leave from %q, want %s", a, got, source)
		}
	}
	if l.finds("203.0.113.8") != "" {
		t.Error("there is a way to an address that no Service has")
	}
}

func (l *lab) finds(addr string) string {
	found, err := openTestKernel(l).RouteGet(netip.MustParseAddr(addr).AsSlice())
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0].Src.String()
}

func openTestKernel(l *lab) *kernel {
	l.Helper()
	k, err := openKernel()
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(k.Close)
	return k
}

// When another route to a destination appears, the follower removes Edgeway's route, unless the other route rejects
// packets.
func TestForeignRoutesReplaceOwn(t *testing.T) {
	l := newLab(t, false, "route add 10.96.0.0/24 via 192.0.2.1", "route add unreachable 203.0.112.0/22")
	l.apply(testPlan(), true)
	l.settled(allOfThem...) // a route to a subnet does not cover the whole range
	for _, step := range []struct {
		ip   string
		want []string
	}{
		// The unreachable route still rejects packets, because its prefix is longer than the new default route's.
		{"route add default via 192.0.2.1", []string{external4, external6, range6}},
		{"route del unreachable 203.0.112.0/22", []string{external6, range6}},
		{"-6 route add default via 2001:db8:2::1", nil},
		{"route del default", []string{range4, external4}},
		{"-6 route del default", allOfThem},
		{"route add 10.0.0.0/8 via 198.51.100.1", []string{external4, external6, range6}},
		{"-6 route add fd00::/16 dev w0", []string{external4, external6}},
		{"route add 203.0.113.7 via 198.51.100.1", []string{external6}},
		{"route del 203.0.113.7", []string{external4, external6}},
		// A routing rule selects another routing table, as a VPN's rule does.
		{"route add default via 198.51.100.1 table 100", []string{external4, external6}},
		{"rule add to 203.0.113.0/24 lookup 100", []string{external6}},
		{"rule del to 203.0.113.0/24", []string{external4, external6}},
		{"route del 10.0.0.0/8", []string{range4, external4, external6}},
		// A Service's address becomes a local address of the host.
		{"addr add 203.0.113.7/32 dev w0", []string{range4, external6}},
		{"addr del 203.0.113.7/32 dev w0", []string{range4, external4, external6}},
		{"route add unreachable default", []string{range4, external4, external6}},
	} {
		l.ip(step.ip)
		t.Log(step.ip)
		l.settled(step.want...)
	}
	if l.drifts > 0 {
		t.Errorf("%d of them were taken for drift", l.drifts)
	}
}

func TestAlwaysAddsRoutesBesideDefaultRoute(t *testing.T) {
	l := newLab(t, true, "route add default via 192.0.2.1", "-6 route add default via 2001:db8:2::1")
	l.apply(testPlan(), true)
	l.settled(range4, range6)
	l.ip("route del default")
	l.settled(range4, external4, range6)
	l.apply(planOf(servicePort("web", 80, "10.96.0.10", "203.0.113.9"),
		servicePort("web6", 80, "fd00:96::10", "2001:db8:77::8")), false)
	l.settled(range4, "203.0.113.9 dev v0 src 192.0.2.10", range6)
}

// A partial sync adds and removes only the routes that changed. If two ServicePorts share an address, the follower
// keeps the route to the address until the plan contains neither ServicePort.
func TestRoutesFollowPlan(t *testing.T) {
	for name, full := range map[string]bool{"partial": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, false)
			l.apply(testPlan(), true)
			for _, step := range []struct {
				plan *plan.Plan
				want []string
			}{
				{planOf(servicePort("web", 80, "10.96.0.10", "203.0.113.7")), []string{range4, external4, range6}},
				{planOf(servicePort("other", 80, "10.96.0.11", "203.0.113.7")), []string{range4, external4, range6}},
				{planOf(servicePort("other", 81, "10.96.0.11", "203.0.113.8")), []string{range4, "203.0.113.8 dev v0 src 192.0.2.10", range6}},
				{planOf(servicePort("other", 81, "10.97.0.11")), []string{range4, "10.97.0.11 dev v0 src 192.0.2.10", range6}},
				{planOf(), []string{range4, range6}},
			} {
				l.apply(step.plan, full)
				l.settled(step.want...)
			}
			p := planOf(servicePort("web", 80, "10.96.0.10"))
			p.Node.ServiceCIDRs = nil
			l.apply(p, false)
			l.settled("10.96.0.10 dev v0 src 192.0.2.10")
			p = planOf(servicePort("web", 80, "10.96.0.10"))
			p.Node.Uplinks = []plan.Uplink{{Addr: netip.MustParseAddr("198.51.100.10"), Interface: "w0"}}
			l.apply(p, false)
			l.settled("10.96.0.0/16 dev w0 src 198.51.100.10")
			p = planOf(servicePort("web", 80, "10.96.0.10"))
			p.Node.Uplinks = nil
			l.apply(p, false)
			l.settled()
		})
	}
}

// The follower restores a route that another program removed, and reports drift. Removing a link or a source address is
// not drift.
func TestLostRoutesAreRestored(t *testing.T) {
	l := newLab(t, false)
	l.apply(testPlan(), true)
	l.settled(allOfThem...)
	for i, lost := range []string{"10.96.0.0/16", "203.0.113.7", "fd00:96::/112", "2001:db8:77::7"} {
		l.ip("route del " + lost)
		l.settled(allOfThem...)
		if l.maintainUntilIdle(); l.drifts != i+1 {
			t.Errorf("after the loss of %s: %d times drift, want %d", lost, l.drifts, i+1)
		}
	}
	l.ip("addr del 192.0.2.10/24 dev v0")
	l.ip("addr add 192.0.2.10/24 dev v0") // before the follower processes the removal
	l.settled(allOfThem...)
	l.maintainUntilIdle()
	l.drifts = 0
	l.ip("link set v0 down")
	l.maintainUntilIdle()
	l.settled()
	if l.drifts > 0 {
		t.Errorf("a link that is down is taken for drift")
	}
	l.ip("link set v0 up")
	l.ip("addr add 2001:db8:2::10/64 dev v0 nodad")
	l.apply(testPlan(), true) // the daemon also runs a full sync after its addresses change
	l.settled(allOfThem...)
}

// The follower keeps other programs' routes. The follower keeps an earlier Edgeway process's routes only if the plan
// still needs them.
func TestRestartAndCleanup(t *testing.T) {
	l := newLab(t, false,
		"route add 10.96.0.0/16 dev w0 proto 119 metric 1000000 src 198.51.100.10",
		"route add 10.1.2.3 dev w0 proto 119", "route add 10.1.2.4 dev w0 proto 119 table 100",
		"-6 route add fd00:77::/64 dev w0 proto 119", "route add 10.1.2.5 dev w0 proto 118",
		"-6 route add fd00:78::/64 dev w0", "route add unreachable 10.1.2.6 proto 119")
	before := l.foreign()
	l.apply(testPlan(), true)
	l.settled(allOfThem...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := l.routes(); !slices.Equal(got, allOfThem) {
		t.Errorf("after Close there is %q", got)
	}
	for range 2 { // the second cleanup succeeds although no route is left
		if err := Component(false, nil).Cleanup(t.Context(), l.env()); err != nil {
			t.Fatal(err)
		}
		if got := l.routes(); len(got) > 0 {
			t.Errorf("after Cleanup there is %q", got)
		}
	}
	if after := l.foreign(); after != before {
		t.Errorf("the host's own routes were\n%s\nand are\n%s", before, after)
	}
}

func (l *lab) foreign() string {
	var out strings.Builder
	for line := range strings.Lines(l.ip("-4 route show table all") + l.ip("-6 route show table all")) {
		if !strings.Contains(line, "proto 119") && !strings.Contains(line, "proto edgeway") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// A partial sync does not list routes, even with 10,000 addresses outside the ClusterIP ranges. The duration of the
// sync depends only on the number of changed addresses.
func TestManySingleAddresses(t *testing.T) {
	l := newLab(t, false)
	var many []*plan.ServicePort
	for i := range 10_000 {
		many = append(many, servicePort(fmt.Sprintf("svc-%05d", i), 80, fmt.Sprintf("10.96.%d.%d", i/250, i%250+1),
			fmt.Sprintf("100.64.%d.%d", i/250, i%250+1)))
	}
	start := time.Now()
	l.apply(planOf(many...), true)
	whole := time.Since(start)
	if got := len(l.routes()); got != 10_002 {
		t.Fatalf("there are %d routes, want 10002", got)
	}
	each := whole
	for i := range 10 {
		next := slices.Clone(l.plan.Services)
		next[i*900] = servicePort(next[i*900].Name.Name, 80, "10.96.0.1", fmt.Sprintf("100.65.0.%d", i+1))
		start = time.Now()
		l.apply(&plan.Plan{Node: l.plan.Node, Services: next}, false)
		each = min(each, time.Since(start)) // on a busy machine, the other changes may take longer
	}
	t.Logf("all of them %v, a change %v", whole, each)
	if each > whole/20 {
		t.Errorf("a change of one takes %v, all of them %v", each, whole)
	}
	if got := len(l.routes()); got != 10_002 {
		t.Errorf("there are %d routes after the changes, want 10002", got)
	}
}

func TestEndpointChangeNeedsNoKernelRequest(t *testing.T) {
	l := newLab(t, false)
	l.apply(testPlan(), true)
	f := l.Proxier.(*follower)
	kernel := f.kernel
	f.kernel = nil // any request to the kernel panics
	defer func() { f.kernel = kernel }()
	next := slices.Clone(l.plan.Services)
	for i, svc := range next {
		changed := *svc
		changed.Serving = []plan.Endpoint{{Addr: netip.MustParseAddrPort("10.1.2.3:8080")}}
		changed.Seal()
		next[i] = &changed
	}
	change := proxiers.NewChange(l.plan, &plan.Plan{Node: l.plan.Node, Services: next})
	if len(change.Changed) != len(next) {
		t.Fatalf("%d of %d have changed", len(change.Changed), len(next))
	}
	if err := f.Apply(l.Context(), change); err != nil {
		t.Fatal(err)
	}
}

// A backend may add a route for each Service address without causing the follower to refresh all routes.
func TestBackendRoutesCauseNoEvents(t *testing.T) {
	l := newLab(t, false)
	l.apply(testPlan(), true)
	l.maintainUntilIdle()
	route := func(table int) []byte {
		return []byte{
			unix.AF_INET, 32, 0, 0, byte(table), 0, 0, unix.RTN_LOCAL, 0, 0, 0, 0, 8, 0, unix.RTA_DST, 0, 10,
			96, 0, 1,
		}
	}
	f := l.Proxier.(*follower)
	for _, table := range []int{ignoredTable, ignoredTable + 1} {
		for _, event := range []uint16{unix.RTM_NEWROUTE, unix.RTM_DELROUTE} {
			f.handle(&syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: event}, Data: route(table)})
		}
		if looks := !f.Due().IsZero(); looks != (table != ignoredTable) {
			t.Errorf("routes of table %d: looked at: %v", table, looks)
		}
	}
}

// A destinations value that holds maxAddrs addresses ignores new addresses, but still counts the frontends of recorded
// addresses.
func TestPlacesAreBounded(t *testing.T) {
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}) }
	one := func(i int, addrs ...int) *plan.ServicePort {
		var texts []string
		for _, a := range addrs {
			texts = append(texts, addr(a).String())
		}
		return servicePort(fmt.Sprintf("svc-%06d", i), 80, "10.96.0.1", texts...)
	}
	var services []*plan.ServicePort
	for i := range maxAddrs + 2 {
		services = append(services, one(i, i))
	}
	before := planOf(services...)
	p := newDestinations(before)
	if len(p.addrs) != maxAddrs || p.overflow != 2 {
		t.Fatalf("%d addresses, and %d left out", len(p.addrs), p.overflow)
	}
	next := slices.Clone(before.Services)
	next[0] = one(0, maxAddrs+1) // this address was omitted, so it must not be counted
	next[maxAddrs] = one(maxAddrs)
	fresh, gone := p.update(proxiers.NewChange(before, &plan.Plan{Node: before.Node, Services: next}))
	if len(fresh) != 0 || !slices.Equal(gone, []netip.Addr{addr(0)}) || len(p.addrs) != maxAddrs-1 ||
		len(p.frontendCounts) != maxAddrs-1 {
		t.Errorf("came %v, went %v, %d are left", fresh, gone, len(p.addrs))
	}
	if p.touches(single(addr(0))) || !p.touches(netip.MustParsePrefix("100.64.0.0/24")) ||
		p.touches(netip.MustParsePrefix("100.63.0.0/16")) {
		t.Error("what is touched is wrong")
	}
}

func TestProtocolHasName(t *testing.T) {
	text, err := os.ReadFile("../../packaging/rt_protos.conf")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\n%d\tedgeway\n", Protocol); !strings.Contains(string(text), want) {
		t.Errorf("it has no line %q:\n%s", want, text)
	}
}
