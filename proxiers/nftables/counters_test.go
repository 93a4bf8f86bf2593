package nftables

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// loopbackPlan has a NodePort 30000 of each protocol and family.
func loopbackPlan(loopbackAddrs ...netip.Addr) *plan.Plan {
	node := testNode()
	node.LoopbackAddrs = loopbackAddrs
	var list []*plan.ServicePort
	for _, proto := range []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP} {
		for f, ep := range map[plan.Family]string{plan.IPv4: "10.244.1.7:8080", plan.IPv6: "[fd00:10:244:1::7]:8080"} {
			svc := service("web", []plan.Frontend{{Kind: plan.NodePort, Port: 30000, Routes: toPods}}, endpoint(ep))
			svc.Name.Protocol, svc.Family = proto, f
			list = append(list, svc)
		}
	}
	return newPlan(node, list...)
}

// knock sends a datagram to an address of this host and gives what comes back. The kernel tells of a
// rejection in the output hook twice: by EPERM at once, then by the ICMP message.
func knock(t *testing.T, at string) error {
	t.Helper()
	conn, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte{1}); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	_, err = conn.Read(make([]byte, 1))
	return err
}

// rejectedPackets gives the counts of UDP, by family; those of SCTP must be zero.
func rejectedPackets(t *testing.T, p proxiers.LoopbackRejecter) string {
	t.Helper()
	list, err := p.LoopbackRejected()
	if err != nil {
		t.Fatal(err)
	}
	var udp []string
	for _, r := range list {
		if r.Protocol == plan.UDP {
			udp = append(udp, fmt.Sprint(r.Family, " ", r.Packets))
		} else if r.Protocol != plan.SCTP || r.Packets != 0 {
			t.Errorf("counter %+v", r)
		}
	}
	return strings.Join(udp, ", ")
}

// TestLoopbackRejects sends packets to NodePorts on loopback: UDP is refused and counted, TCP is what the
// host's own sockets make of it. The conformance suite does the same with SCTP.
func TestLoopbackRejects(t *testing.T) {
	newHost(t)
	loopback(t)
	p, drift := newProxier(t)
	if got := rejectedPackets(t, p); got != "IPv4 0, IPv6 0" {
		t.Errorf("without tables: %s packets", got)
	}
	off, on := loopbackPlan(), loopbackPlan(addr("127.0.0.1"), addr("::1"))
	on.Services = off.Services
	apply(t, p, nil, off)
	without := kernelState(t, p)
	apply(t, p, off, on)
	with := kernelState(t, p)
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		l, err := net.Listen("tcp", host+":30000")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		conn, err := net.DialTimeout("tcp", host+":30000", time.Second)
		if err != nil {
			t.Fatalf("TCP to %s, where somebody listens: %v", host, err)
		}
		_ = conn.Close()
		if err := knock(t, host+":30000"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("UDP to %s: %v, want a refusal", host, err)
		}
		_ = knock(t, host+":30001") // no NodePort: not counted
	}
	if got := rejectedPackets(t, p); got != "IPv4 1, IPv6 1" {
		t.Errorf("%s packets counted, want one each", got)
	}
	apply(t, p, nil, on)
	if got := rejectedPackets(t, p); got != "IPv4 1, IPv6 1" {
		t.Errorf("after a full sync: %s packets", got)
	}
	if diff := firstDifference(with, kernelState(t, p)); diff != "" {
		t.Errorf("a full sync: %s", diff)
	}
	apply(t, p, on, off)
	if diff := firstDifference(without, kernelState(t, p)); diff != "" {
		t.Errorf("turned off, an element is left: %s", diff)
	}
	if drift.count() != 0 {
		t.Errorf("drift reported for our own transactions: %q", drift.reasons)
	}
}

// A listener of UDP at the port of a NodePort that is not served on loopback is the host's own affair.
func TestLoopbackIsLeftAloneUnlessListed(t *testing.T) {
	newHost(t)
	loopback(t)
	p, _ := newProxier(t)
	apply(t, p, nil, loopbackPlan(addr("::1")))
	conn, err := net.ListenPacket("udp", "127.0.0.1:30000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = knock(t, "127.0.0.1:30000")
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if n, _, err := conn.ReadFrom(make([]byte, 1)); n != 1 {
		t.Errorf("the packet did not arrive: %v", err)
	}
	if got := rejectedPackets(t, p); got != "IPv4 0, IPv6 0" {
		t.Errorf("%s packets counted", got)
	}
}

// The element-only change must not touch anything else.
func TestLoopbackChangeIsOneElementOfEachFamily(t *testing.T) {
	r := testRenderer(plan.IPv4, plan.IPv6)
	off, on := loopbackPlan(), loopbackPlan(addr("127.0.0.1"), addr("::1"))
	on.Services = off.Services
	l := newLedger()
	r.enlist(l, off)
	before := fmt.Sprint(maps.Clone(l.objects))
	tx, touched := r.partial(l, off, on, time.Time{})
	if tx.NumOperations() != 2 || len(touched) != 0 || fmt.Sprint(l.objects) != before {
		t.Errorf("%d operations:\n%s", tx.NumOperations(), strings.TrimSpace(tx.String()))
	}
}
