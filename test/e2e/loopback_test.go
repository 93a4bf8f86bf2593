package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const onLoopback = "[proxy]\nnodeport_addresses = [\"primary\", \"localhost\"]\n"

func fromLoopback(protocol plan.Protocol, addr string) netlab.Flow {
	to := netip.MustParseAddrPort(addr)
	return netlab.Flow{Protocol: protocol, From: to.Addr(), To: to, Wait: dialTimeout, ReplyWait: replyTimeout}
}

// answersLoopback returns an error unless the endpoint responds to a TCP connection from the node to addr, a loopback
// address. If endpoint is "", the connection must fail with a TCP reset instead.
func (l *lab) answersLoopback(addr, endpoint string) func() error {
	f := fromLoopback(plan.TCP, addr)
	return func() error {
		got := l.node.Connect(f)
		if got.Server != endpoint || endpoint == "" && got.Result != netlab.Reset {
			return fmt.Errorf("TCP to %s: %s, want an answer of %q", addr, got, endpoint)
		}
		return nil
	}
}

// metricAtLeast returns an error unless the given metric in /metrics has at least the given value.
func (d *daemon) metricAtLeast(line string, least float64) func() error {
	return func() error {
		_, body, err := d.get(metricsAddr, "/metrics")
		if err != nil {
			return err
		}
		for l := range strings.Lines(body) {
			if value, ok := strings.CutPrefix(l, line+" "); ok {
				if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil || n < least {
					return fmt.Errorf("%s is %q, want %g or more", line, value, least)
				}
				return nil
			}
		}
		return fmt.Errorf("there is no metric %s", line)
	}
}

// A NodePort on loopback must follow changes to its Service, its endpoints and the configuration, and must work after
// the daemon restarts. An established connection must survive as long as the daemon is running.
func TestNodePortOnLoopback(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.configure(onLoopback)
	d.startReady()
	n := l.newNamespace()
	svc := n.createService("shop", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	port := int(svc.Spec.Ports[0].NodePort)
	tcp, udp := at("127.0.0.1", port), at("127.0.0.1", int(svc.Spec.Ports[1].NodePort))
	l.must(l.answersLoopback(tcp, "")())
	n.setEndpoints("shop", ep1Addr)
	l.waitFor(longTimeout, l.answersLoopback(tcp, "ep1"))
	l.waitFor(longTimeout, answers(l.client, at(nodeAddr, port), "ep1"))
	if got := l.node.Connect(fromLoopback(plan.UDP, udp)); got.Result != netlab.Refused {
		t.Errorf("UDP to %s: %s, want a refusal", udp, got)
	}
	l.waitFor(longTimeout, d.metricAtLeast(`kubeproxy_nftables_localhost_nodeport_listeners{ip_family="IPv4"}`, 1))
	l.must(d.metricAtLeast(`kubeproxy_nftables_localhost_nodeport_rejected_packets_total{ip_family="IPv4",protocol="UDP"}`, 1)())
	l.must(d.metricAtLeast(`edgeway_loopback_bytes_total{direction="to_client"}`, 1)())
	if out, errs, code := d.edgeway("explain", "host", tcp); code != 0 || !strings.Contains(out, ep1Addr) {
		t.Errorf("edgeway explain ended with %d: %s%s", code, out, errs)
	}

	long, failure := l.node.Open(fromLoopback(plan.TCP, tcp))
	if long == nil {
		t.Fatal(failure)
	}
	defer long.Close()
	goesOn := func(when string) {
		t.Helper()
		if got := long.Ask(dialTimeout); got.Server != "ep1" {
			t.Errorf("the connection %s: %s", when, got)
		}
	}
	goesOn("at first")
	d.configure(onLoopback + "fallback = \"none\"\n")
	d.signal(syscall.SIGHUP)
	l.mustStay(time.Second, l.answersLoopback(tcp, "ep1"))
	l.waitFor(longTimeout, d.logged("configuration reloaded"))
	goesOn("after a reload")
	n.setEndpoints("shop")
	l.waitFor(longTimeout, l.answersLoopback(tcp, ""))
	goesOn("after the last endpoint was removed")
	n.setEndpoints("shop", ep2Addr)
	l.waitFor(longTimeout, l.answersLoopback(tcp, "ep2"))
	d.configure("")
	d.signal(syscall.SIGHUP)
	l.waitFor(longTimeout, l.answersLoopback(tcp, ""))
	l.must(answers(l.client, at(nodeAddr, port), "ep2")())
	goesOn("after loopback was turned off")
	d.configure(onLoopback)
	d.signal(syscall.SIGHUP)
	l.waitFor(longTimeout, l.answersLoopback(tcp, "ep2"))
	goesOn("after loopback was turned on again")

	d.stop()
	l.must(l.answersLoopback(tcp, "")()) // while the daemon is stopped, no other process keeps the socket open
	d.startReady()
	l.waitFor(longTimeout, l.answersLoopback(tcp, "ep2"))
	n.remove("shop")
	l.waitFor(longTimeout, l.answersLoopback(tcp, ""))
}

// If another program already uses a NodePort on loopback, Edgeway must report the conflict. Once the port is free,
// Edgeway must serve the NodePort.
func TestNodePortInUseOnLoopback(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.configure(onLoopback)
	d.startReady()
	n := l.newNamespace()
	const taken = "127.0.0.1:31999"
	free, err := l.node.Start("squatter", netip.MustParseAddrPort(taken), plan.TCP)
	l.must(err)
	n.createService("unlucky", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		s.Ports[0].NodePort = 31999
	})
	n.setEndpoints("unlucky", ep1Addr)
	_, nodePort := n.createWeb("lucky")
	l.waitFor(longTimeout, d.logged("level=WARN", taken, n.name+"/unlucky"))
	l.waitFor(longTimeout, l.answersLoopback(at("127.0.0.1", int(netip.MustParseAddrPort(nodePort).Port())), "ep1"))
	l.waitFor(longTimeout, answers(l.client, at(nodeAddr, 31999), "ep1"))
	l.must(l.answersLoopback(taken, "squatter")())
	l.must(d.metricAtLeast(
		`kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total{ip_family="IPv4"}`, 1)())
	l.must(d.commandPrints([]string{"status"}, "DEGRADED",
		"problem   ports: "+n.name+"/unlucky:web/TCP: Edgeway does not serve "+taken, syscall.EADDRINUSE.Error())())
	l.must(free())
	l.waitFor(longTimeout, l.answersLoopback(taken, "ep1"))
}

func TestNodePortOnLoopbackOverIPv6(t *testing.T) {
	l := newLab(t)
	endpoint := netip.MustParseAddr("fd00:10:244:2::16")
	l.must(l.net.Host("ep6", endpoint).Serve("ep6", netip.AddrPortFrom(endpoint, endpointPort), plan.TCP))
	d := l.newDaemon()
	d.configure(onLoopback)
	d.startReady()
	n := l.newNamespace()
	svc := n.createService("six", func(s *corev1.ServiceSpec) {
		s.Type, s.IPFamilies = corev1.ServiceTypeNodePort, []corev1.IPFamily{corev1.IPv6Protocol}
	})
	_, err := sharedState.admin.Discovery.EndpointSlices(n.name).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "six", Labels: map[string]string{discoveryv1.LabelServiceName: "six"}},
		AddressType: discoveryv1.AddressTypeIPv6,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint.String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(endpointPort)), Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	l.must(err)
	l.waitFor(longTimeout, l.answersLoopback(at("::1", int(svc.Spec.Ports[0].NodePort)), "ep6"))
	l.must(l.answersLoopback(at("127.0.0.1", int(svc.Spec.Ports[0].NodePort)), "")())
	if got := l.node.Connect(fromLoopback(plan.UDP,
		at("::1", int(svc.Spec.Ports[1].NodePort)))); got.Result != netlab.Refused {
		t.Errorf("UDP: %s, want a refusal", got)
	}
}

// If the service manager keeps the daemon's sockets, the host must not refuse new connections while the daemon
// restarts. Clients must also be able to finish open connections.
func TestNodePortOnLoopbackAcrossRestarts(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.manager = l.newManager(d.dir)
	d.configure(onLoopback)
	d.startReady()
	n := l.newNamespace()
	_, nodePort := n.createWeb("shop")
	loopback := at("127.0.0.1", int(netip.MustParseAddrPort(nodePort).Port()))
	l.waitFor(longTimeout, l.answersLoopback(loopback, "ep1"))
	l.waitFor(longTimeout, d.manager.hasSockets(1))

	f := fromLoopback(plan.TCP, loopback)
	f.Wait, f.ReplyWait = longTimeout, 0
	end, ended := make(chan struct{}), make(chan struct{})
	var failures []string
	served, longest := 0, time.Duration(0)
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			start := time.Now()
			if got := l.node.Connect(f); got.Server == "ep1" {
				served++
			} else {
				failures = append(failures, got.String())
			}
			longest = max(longest, time.Since(start))
		}
	}()
	for range 5 {
		d.stop()
		d.startReady()
		time.Sleep(100 * time.Millisecond)
	}
	close(end)
	<-ended
	t.Logf("%d connections over 5 restarts, the longest took %.0f ms", served, longest.Seconds()*1000)
	if len(failures) > 0 || served < 20 {
		t.Errorf("%d connections of %d failed: %q", len(failures), len(failures)+served,
			failures[:min(len(failures), 3)])
	}
	n.remove("shop")
	l.waitFor(longTimeout, d.manager.hasSockets(0))
	l.must(l.answersLoopback(loopback, "")())
}
