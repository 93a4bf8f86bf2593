package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

var (
	udp4  = netlink.Scope{Family: plan.IPv4, Protocol: plan.UDP}
	udp6  = netlink.Scope{Family: plan.IPv6, Protocol: plan.UDP}
	sctp4 = netlink.Scope{Family: plan.IPv4, Protocol: plan.SCTP}
)

// applyAndCount applies a plan, and fails the test unless the follower deletes the given number of flows.
func (s *step) applyAndCount(next *plan.Plan, deleted int) {
	s.t.Helper()
	s.apply(proxiers.NewChange(s.last, next), deleted)
}

func (s *step) full(next *plan.Plan, deleted int) {
	s.t.Helper()
	s.apply(proxiers.NewChange(nil, next), deleted)
}

func (s *step) apply(c proxiers.Change, deleted int) {
	s.t.Helper()
	before, _ := s.readCounts()
	if err := s.follower.Apply(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
	if after, _ := s.readCounts(); after-before != deleted {
		s.t.Errorf("%d flows deleted, want %d", after-before, deleted)
	}
	s.last = c.Next
}

func planOf(services ...*plan.ServicePort) *plan.Plan {
	slices.SortFunc(services, (*plan.ServicePort).Compare)
	return &plan.Plan{
		Node:     &plan.Node{NodePortAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		Services: services,
	}
}

// service returns a ServicePort. Each frontend has the form "ADDR:PORT" or ":NODEPORT".
func service(s netlink.Scope, name string, frontends []string, serving ...string) *plan.ServicePort {
	of := plan.ServicePortName{Namespace: "default", Name: name, Protocol: s.Protocol}
	svc := &plan.ServicePort{Name: of, Family: s.Family}
	for _, f := range frontends {
		if f[0] == ':' {
			var port uint16
			if _, err := fmt.Sscanf(f, ":%d", &port); err != nil {
				panic(err)
			}
			svc.Frontends = append(svc.Frontends, plan.Frontend{Kind: plan.NodePort, Port: port})
			continue
		}
		a := netip.MustParseAddrPort(f)
		svc.Frontends = append(svc.Frontends, plan.Frontend{Addr: a.Addr(), Port: a.Port()})
	}
	for _, e := range serving {
		svc.Serving = append(svc.Serving, plan.Endpoint{Addr: netip.MustParseAddrPort(e)})
	}
	svc.Seal()
	return svc
}

const (
	vip      = "10.96.0.10:53"
	toFirst  = "ip daddr 10.96.0.10 udp dport 53 dnat ip to 10.0.0.1:5353"
	toSecond = "ip daddr 10.96.0.10 udp dport 53 dnat ip to 10.0.0.2:5353"
	first    = "10.0.0.1:5353"
	second   = "10.0.0.2:5353"
)

func TestClientOfRemovedEndpointMovesToAnother(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	echo(t, second)
	s := newStep(t)
	translate(t, toFirst)
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip}, first, second)), 0)
	moved, other := dial(t, vip), dial(t, vip)
	moved.wantAnswer(first)
	translate(t, toSecond)
	other.wantAnswer(second)
	moved.wantAnswer(first) // the old entry still applies instead of the new rule

	s.applyAndCount(planOf(service(udp4, "dns", []string{vip}, second)), 1)
	moved.wantAnswer(second)
	other.wantAnswer(second)
}

func TestIPv6ClientOfRemovedEndpointMovesToAnother(t *testing.T) {
	enterNamespace(t)
	echo(t, "[fd00::1]:5353")
	echo(t, "[fd00::2]:5353")
	const vip = "[fd00:96::10]:53"
	rule := "ip6 daddr fd00:96::10 udp dport 53 dnat ip6 to [fd00::%d]:5353"
	s := newStep(t)
	translate(t, fmt.Sprintf(rule, 1))
	s.applyAndCount(planOf(service(udp6, "dns", []string{vip}, "[fd00::1]:5353")), 0)
	c := dial(t, vip)
	c.wantAnswer("[fd00::1]:5353")
	translate(t, fmt.Sprintf(rule, 2))
	s.applyAndCount(planOf(service(udp6, "dns", []string{vip}, "[fd00::2]:5353")), 1)
	c.wantAnswer("[fd00::2]:5353")
}

func TestFlowsFromBeforeServiceReachIt(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	s := newStep(t)
	translate(t)
	s.applyAndCount(planOf(), 0)
	early := dial(t, vip)
	early.wantAnswer("")
	translate(t, toFirst)
	early.wantAnswer("") // the untranslated entry still applies
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip}, first)), 1)
	early.wantAnswer(first)
}

func TestScaleToZeroAndBack(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	s := newStep(t)
	translate(t, toFirst)
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip}, first)), 0)
	c := dial(t, vip)
	c.wantAnswer(first)
	translate(t)
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip})), 1)
	c.wantAnswer("") // the rules of this test reject nothing, so the flow leaves the host untranslated
	translate(t, toFirst)
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip}, first)), 1)
	c.wantAnswer(first)
}

func TestDeletedServiceLosesItsFlows(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	s := newStep(t)
	translate(t, toFirst)
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip}, first)), 0)
	c := dial(t, vip)
	c.wantAnswer(first)
	translate(t)
	s.applyAndCount(planOf(), 1)
	c.wantAnswer("")
	s.applyAndCount(planOf(service(udp4, "other", []string{"10.96.0.11:53"}, first)), 0)
	if idOf(t, udp4, vip) == 0 {
		t.Error("an untranslated flow to an address that is no Service's any more was deleted")
	}
}

func TestFullSyncAfterFailureRemovesStaleFlows(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	s := newStep(t)
	translate(t, toFirst)
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip}, first)), 0)
	dial(t, vip).wantAnswer(first)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.follower.Apply(over, proxiers.NewChange(s.last, planOf())); err == nil {
		t.Fatal("a clean-up whose context is over succeeded")
	}
	s.full(planOf(), 1)
}

func TestRestartRemovesStaleFlows(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	echo(t, second)
	translate(t, toFirst, "ip daddr 10.96.0.11 udp dport 53 dnat ip to 10.0.0.2:5353")
	stale, good := dial(t, vip), dial(t, "10.96.0.11:53")
	stale.wantAnswer(first)
	good.wantAnswer(second)
	kept := idOf(t, udp4, "10.96.0.11:53")

	translate(t, toSecond)
	newStep(t).full(planOf(
		service(udp4, "dns", []string{vip}, second),
		service(udp4, "good", []string{"10.96.0.11:53"}, second),
	), 1)
	stale.wantAnswer(second)
	if idOf(t, udp4, "10.96.0.11:53") != kept {
		t.Error("a flow to an endpoint that serves was deleted")
	}
}

func TestNodePortCleanupKeepsUnrelatedFlows(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	echo(t, second)
	s := newStep(t)
	const np = "192.0.2.1:30053"
	translate(t, "ip daddr 192.0.2.1 udp dport 30053 dnat ip to 10.0.0.1:5353")
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip, ":30053"}, first)), 0)
	c := dial(t, np)
	c.wantAnswer(first)
	unrelated := []string{"203.0.113.9:30053", "192.0.2.2:30053", "203.0.113.9:53", "10.96.0.10:54", "10.96.0.11:53"}
	var ids []uint32
	for _, dst := range unrelated {
		if dst == "192.0.2.2:30053" {
			echo(t, dst) // dst is a local address that does not accept NodePorts
		}
		dial(t, dst).send()
		ids = append(ids, idOf(t, udp4, dst))
	}
	translate(t, "ip daddr 192.0.2.1 udp dport 30053 dnat ip to 10.0.0.2:5353")
	s.applyAndCount(planOf(service(udp4, "dns", []string{vip, ":30053"}, second)), 1)
	c.wantAnswer(second)
	for i, dst := range unrelated {
		if ids[i] == 0 || idOf(t, udp4, dst) != ids[i] {
			t.Errorf("the unrelated flow to %s was touched", dst)
		}
	}
}

func TestNewNodeAddressTakesOverItsFlows(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	echo(t, "192.0.2.2:30053")
	s := newStep(t)
	svc := service(udp4, "dns", []string{":30053"}, first)
	translate(t)
	s.applyAndCount(planOf(svc), 0)
	c := dial(t, "192.0.2.2:30053")
	c.wantAnswer("192.0.2.2:30053")
	translate(t, "ip daddr 192.0.2.2 udp dport 30053 dnat ip to 10.0.0.1:5353")
	next := planOf(svc)
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	next.Node = &plan.Node{NodePortAddrs: addrs}
	s.applyAndCount(next, 1)
	c.wantAnswer(first)
}

func TestFrontendMovesToAnotherService(t *testing.T) {
	enterNamespace(t)
	echo(t, first)
	echo(t, second)
	s := newStep(t)
	translate(t, toFirst)
	s.applyAndCount(planOf(service(udp4, "a", []string{vip}, first),
		service(udp4, "z", []string{"10.96.0.11:53"}, first, second)), 0)
	c := dial(t, vip)
	c.wantAnswer(first)
	before := idOf(t, udp4, vip)
	s.applyAndCount(planOf(service(udp4, "z", []string{vip, "10.96.0.11:53"}, first, second)), 0)
	if idOf(t, udp4, vip) != before {
		t.Error("the flow was cut though its endpoint serves the new owner of the address too")
	}
	translate(t, toSecond)
	s.applyAndCount(planOf(service(udp4, "b", []string{vip}, second)), 1)
	c.wantAnswer(second)
}

func TestSCTPAssociationOfRemovedEndpoint(t *testing.T) {
	enterNamespace(t)
	s := newStep(t)
	const dst = "10.96.0.20:36412"
	write(t, "/proc/sys/net/netfilter", "nf_conntrack_sctp_timeout_cookie_wait", "120") // not 3 s, for busy machines
	translate(t, "ip daddr 10.96.0.20 sctp dport 36412 dnat ip to 10.0.0.1:36412")
	s.applyAndCount(planOf(service(sctp4, "amf", []string{dst}, "10.0.0.1:36412", "10.0.0.2:36412")), 0)
	sendInit(t, netip.MustParseAddrPort(dst))
	if idOf(t, sctp4, dst) == 0 {
		t.Fatal("the kernel does not track the association")
	}
	s.applyAndCount(planOf(service(sctp4, "amf", []string{dst}, "10.0.0.2:36412")), 1)
	if idOf(t, sctp4, dst) != 0 {
		t.Error("the association to the endpoint that is gone is still there")
	}
}

// sendInit sends the first packet of an SCTP association. sendInit uses a raw socket, which works without SCTP support
// in the kernel.
func sendInit(t *testing.T, dst netip.AddrPort) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, int(plan.SCTP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	// The packet consists of the SCTP common header and an INIT chunk.
	packet := make([]byte, 12+20)
	// The packet starts with the source and destination ports.
	packet[0], packet[1], packet[2], packet[3] = 0x8e, 0x3c, byte(dst.Port()>>8), byte(dst.Port()&0xff)
	// The chunk's type is INIT, and its length is 20 bytes.
	packet[12], packet[15] = 1, 20
	packet[19], packet[22], packet[25], packet[27], packet[31] = 7 /* initiate tag */, 0xff, 1, 1, 1 /* TSN */
	if err := syscall.Sendto(fd, packet, 0, &syscall.SockaddrInet4{Addr: dst.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
}

func TestManyDestinationsInOneSync(t *testing.T) {
	for name, others := range map[string]int{"among few flows": 0, "among many flows": 2 * flowsPerWalk} {
		t.Run(name, func(t *testing.T) {
			enterNamespace(t)
			echo(t, first)
			s := newStep(t)
			translate(t, "ip daddr 10.96.0.0/16 udp dport 53 dnat ip to 10.0.0.1:5353")
			createFlows(t, others)
			var before, after []*plan.ServicePort
			for _, dst := range []string{"10.96.1.1:53", "10.96.1.2:53", "10.96.1.3:53"} {
				name := "s-" + dst
				before = append(before, service(udp4, name, []string{dst}, first))
				after = append(after, service(udp4, name, []string{dst}))
			}
			s.applyAndCount(planOf(before...), 0)
			for _, svc := range before {
				dial(t, netip.AddrPortFrom(svc.Frontends[0].Addr, svc.Frontends[0].Port).String()).wantAnswer(first)
			}
			s.applyAndCount(planOf(after...), 3)
			if got := len(flows(t, udp4)); got < others {
				t.Errorf("%d flows are left of at least %d others", got, others)
			}
		})
	}
}

func TestKernelFiltersFlows(t *testing.T) {
	enterNamespace(t)
	translate(t, "udp dport 1 accept")
	dial(t, "203.0.113.200:54").send()
	for i := range 20 {
		dial(t, fmt.Sprintf("203.0.113.%d:53", i)).send()
	}
	tab, err := netlink.OpenConntrack()
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	seen := 0
	if err := tab.Dump(udp4, netip.MustParseAddrPort("203.0.113.200:54"), func(*netlink.Flow) { seen++ }); err != nil {
		t.Fatal(err)
	}
	if seen != 1 {
		t.Errorf("the kernel gave %d flows for one destination, want 1", seen)
	}
}

// The netlink socket stays open between cleanups unless it may contain unread responses.
func TestSocketIsReused(t *testing.T) {
	enterNamespace(t)
	s := newStep(t)
	one, other := planOf(service(udp4, "dns", []string{vip}, first)),
		planOf(service(udp4, "dns", []string{vip}, second))
	s.applyAndCount(one, 0)
	kept := s.follower.socket
	if s.applyAndCount(other, 0); kept == nil || s.follower.socket != kept {
		t.Error("another socket is used")
	}
	kept.Close()
	if err := s.follower.Apply(t.Context(), proxiers.NewChange(other, one)); err == nil || s.follower.socket != nil {
		t.Errorf("error %v by a socket that is closed", err)
	}
	s.applyAndCount(one, 0)
}

// With a cancelled context, every attempt to read the kernel's connection-tracking table fails, so a nil error proves
// that the follower did not read the table.
func TestIrrelevantChangesDoNotReadFlows(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	tcp := netlink.Scope{Family: plan.IPv4, Protocol: plan.TCP}
	base := []*plan.ServicePort{
		service(udp4, "dns", []string{vip}, first),
		service(tcp, "web", []string{"10.96.0.9:80"}, first),
	}
	for name, next := range map[string][]*plan.ServicePort{
		"nothing":           base,
		"endpoint gained":   {service(udp4, "dns", []string{vip}, first, second), base[1]},
		"TCP endpoint lost": {base[0], service(tcp, "web", []string{"10.96.0.9:80"})},
		"TCP removed":       {base[0]},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStep(t)
			err := s.follower.Apply(over, proxiers.NewChange(planOf(base...), planOf(next...)))
			if _, looks := s.readCounts(); err != nil || looks != 0 {
				t.Errorf("looked at the table %d times: %v", looks, err)
			}
		})
	}
	s := newStep(t)
	if err := s.follower.Apply(over, proxiers.NewChange(planOf(base...),
		planOf(service(udp4, "dns", []string{vip}), base[1]))); err == nil {
		t.Error("a lost UDP endpoint did not make the follower look at the table")
	}
}
