package nftables

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// loopbackPlan returns a plan with NodePort 30000 for each protocol and family.
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

// sendDatagram sends a datagram to one of this host's addresses and returns the error from the ICMP response, or a
// timeout if no response arrives within the given time. If a rule in the output hook rejects the packet, the kernel
// returns EPERM immediately, and later also delivers the ICMP message.
func sendDatagram(t *testing.T, at string, within time.Duration) error {
	t.Helper()
	conn, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte{1}); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(within))
	_, err = conn.Read(make([]byte, 1))
	return err
}

func figures(t *testing.T, p *proxier, name string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			found[strings.Join(labels, " ")] = m.GetCounter().GetValue()
		}
	}
	return found
}

// mustHaveRejected fails the test unless the metrics count the given numbers of rejected UDP packets over IPv4 and
// IPv6, and no rejected SCTP packets.
func mustHaveRejected(t *testing.T, p *proxier, v4, v6 float64) {
	t.Helper()
	want := map[string]float64{
		"ip_family=IPv4 protocol=UDP": v4, "ip_family=IPv6 protocol=UDP": v6,
		"ip_family=IPv4 protocol=SCTP": 0, "ip_family=IPv6 protocol=SCTP": 0,
	}
	if got := figures(t, p, "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"); !maps.Equal(got, want) {
		t.Errorf("rejected packets %v, want %v", got, want)
	}
}

// Each family's counter of failed syncs must exist before the first failure.
func TestFailuresAreCounted(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []float64{0, 1} {
		want := map[string]float64{"ip_family=IPv4": n, "ip_family=IPv6": n}
		if got := figures(t, p, "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"); !maps.Equal(got, want) {
			t.Errorf("failures %v, want %v", got, want)
		}
		_ = p.Apply(ctx, proxiers.NewChange(nil, newPlan(testNode())))
	}
}

func TestScrapeDuringApply(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t)
	stop := make(chan struct{})
	var scraping sync.WaitGroup
	scraping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				figures(t, p, "")
			}
		}
	})
	full := newPlan(testNode(), webServices()...)
	for range 5 {
		apply(t, p, nil, full)
		apply(t, p, full, newPlan(full.Node))
	}
	close(stop)
	scraping.Wait()
}

// TestLoopbackRejects sends packets to NodePorts on loopback. The rules must reject and count UDP packets, but must let
// TCP connections reach the host's sockets. The conformance suite tests SCTP packets to NodePorts on loopback.
func TestLoopbackRejects(t *testing.T) {
	newHost(t)
	loopback(t)
	p, drift := testProxier(t)
	mustHaveRejected(t, p, 0, 0)
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
		conn, err := net.DialTimeout("tcp", host+":30000", 30*time.Second)
		if err != nil {
			t.Fatalf("TCP to %s, where a program listens: %v", host, err)
		}
		_ = conn.Close()
		if err := sendDatagram(t, host+":30000", 30*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("UDP to %s: %v, want a refusal", host, err)
		}
		_ = sendDatagram(t, host+":30001", 30*time.Second) // no NodePort uses this port, so the packet does not count
	}
	mustHaveRejected(t, p, 1, 1)
	apply(t, p, nil, on)
	mustHaveRejected(t, p, 1, 1)
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

// If Node.LoopbackAddrs lacks a loopback address, a UDP packet to a NodePort at that address reaches the host's own
// server.
func TestUnlistedLoopbackNodePortIsNotRejected(t *testing.T) {
	newHost(t)
	loopback(t)
	p, _ := testProxier(t)
	apply(t, p, nil, loopbackPlan(addr("::1")))
	conn, err := net.ListenPacket("udp", "127.0.0.1:30000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = sendDatagram(t, "127.0.0.1:30000", time.Millisecond)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, _, err := conn.ReadFrom(make([]byte, 1)); n != 1 {
		t.Errorf("the packet did not arrive: %v", err)
	}
	mustHaveRejected(t, p, 0, 0)
}

func TestLoopbackChangeIsOneElementPerFamily(t *testing.T) {
	off, on := loopbackPlan(), loopbackPlan(addr("127.0.0.1"), addr("::1"))
	on.Services = off.Services
	tx := nfttable.Render(schema(false), testEnv(plan.IPv4, plan.IPv6), proxiers.NewChange(off, on))
	if want := "add element ip edgeway loopback-addresses { 127.0.0.1 }\nadd element ip6 edgeway loopback-addresses { ::1 }\n"; tx != want {
		t.Errorf("operations:\n%swant:\n%s", tx, want)
	}
}
