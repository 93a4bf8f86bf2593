package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/proxiers/plan"
)

func TestServicesFollowAPI(t *testing.T) {
	l, _ := running(t)
	n := l.newNamespace()

	svc := n.createService("shop", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeLoadBalancer
		s.ExternalIPs = []string{"198.51.100.7"}
		s.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
	})
	n.setLoadBalancer(svc, "198.51.100.8")
	clusterIP := at(svc.Spec.ClusterIP, 80)
	nodePort := at(nodeAddr, int(svc.Spec.Ports[0].NodePort))
	l.waitFor(longTimeout, isRefused(l.node, clusterIP)) // the Service has no endpoints yet

	n.setEndpoints("shop", ep1Addr)
	l.waitFor(longTimeout, answers(l.node, clusterIP, "ep1"))
	for _, addr := range []string{clusterIP, nodePort, "198.51.100.7:80", "198.51.100.8:80"} {
		l.waitFor(longTimeout, answers(l.client, addr, "ep1"))
	}
	l.waitFor(longTimeout, answersUDP(l.client, at(svc.Spec.ClusterIP, 53), "ep1"))
	l.waitFor(longTimeout, isSilent(l.ep2, "198.51.100.8:80")) // ep2 is outside the source ranges

	n.setEndpoints("shop", ep2Addr)
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep2"))
	l.waitFor(longTimeout, answersUDP(l.client, at(svc.Spec.ClusterIP, 53), "ep2"))

	patch := `[{"op":"replace","path":"/spec/ports/0/port","value":8000}]`
	_, err := sharedState.admin.Core.Services(n.name).Patch(t.Context(), "shop", "application/json-patch+json",
		[]byte(patch), metav1.PatchOptions{})
	l.must(err)
	l.waitFor(longTimeout, answers(l.client, at(svc.Spec.ClusterIP, 8000), "ep2"))
	l.waitFor(longTimeout, isRefused(l.client, clusterIP)) // the ClusterIP no longer has this port

	n.remove("shop")
	for _, addr := range []string{at(svc.Spec.ClusterIP, 8000), nodePort, "198.51.100.7:8000", "198.51.100.8:8000"} {
		l.waitFor(longTimeout, isUnanswered(l.client, addr))
	}
}

// When the endpoint of a UDP client's flow disappears, the client's next datagrams from the same socket must reach
// another endpoint.
func TestUDPClientFollowsEndpoints(t *testing.T) {
	l, _ := running(t)
	n := l.newNamespace()
	svc := n.createService("dns", nil)
	n.setEndpoints("dns", ep1Addr)
	l.waitFor(longTimeout, answersUDP(l.client, at(svc.Spec.ClusterIP, 53), "ep1"))

	c, failure := l.client.Open(flow(l.client, plan.UDP, at(svc.Spec.ClusterIP, 53)))
	if c == nil {
		t.Fatal(failure)
	}
	defer c.Close()
	wantFrom := func(name string) func() error {
		return func() error {
			if got := c.Ask(dialTimeout); got.Server != name {
				return fmt.Errorf("one client's next datagram: %s, want served by %s", got, name)
			}
			return nil
		}
	}
	l.must(wantFrom("ep1")())
	n.setEndpoints("dns", ep2Addr)
	l.waitFor(longTimeout, wantFrom("ep2"))
}

// The host has no Node object, so the daemon can serve Services as soon as it has received the first lists of objects.
func TestFirstServiceWithinTwoSecondsOfStart(t *testing.T) {
	l := newLab(t)
	clusterIP, _ := l.newNamespace().createWeb("early")
	d := l.newDaemon()
	limit := l.extendLimit(2 * time.Second)
	d.start()
	took := l.waitFor(limit, answersSoon(l.node, clusterIP, "ep1"))
	t.Logf("ClusterIP served %.0f ms after the start", took.Seconds()*1000)
	l.waitFor(longTimeout, d.healthy)
	if _, body, _ := d.get(healthAddr, "/healthz"); !strings.Contains(body, `"nodeEligible":true`) {
		t.Errorf("without a Node object /healthz says %s", body)
	}
}

// A load balancer queries each host to find out whether the host has local endpoints.
func TestHealthCheckNodePort(t *testing.T) {
	l, d := running(t)
	n := l.newNamespace()
	svc := n.createService("local", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeLoadBalancer
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	n.setEndpoints("local", ep1Addr)
	check := at(nodeAddr, int(svc.Spec.HealthCheckNodePort))
	answerIs := func(want int, endpoints string) func() error {
		return func() error {
			code, body, err := d.get(check, "/")
			if err == nil && (code != want || !strings.Contains(body, endpoints)) {
				err = fmt.Errorf("the health check port answers %d, want %d: %s", code, want, body)
			}
			return err
		}
	}
	l.waitFor(longTimeout, answerIs(503, `"localEndpoints": 0,`))
	n.endpointsOn("local", nodeName, ep1Addr)
	l.waitFor(longTimeout, answerIs(200, `"localEndpoints": 1,`))
	n.remove("local")
	l.waitFor(longTimeout, isReset(l.client, check))
}

// If a program on the host uses a Service's health check port, the status must report a fault that names the port. No
// other Service may have a fault.
func TestHealthCheckPortInUse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	n := l.newNamespace()
	svc := n.createService("local", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeLoadBalancer
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	n.endpointsOn("local", nodeName, ep1Addr)
	port := svc.Spec.HealthCheckNodePort
	stop, err := l.node.Start("program", netip.MustParseAddrPort(at("::", int(port))), plan.TCP)
	l.must(err)
	d.startReady()
	check := at(nodeAddr, int(port))
	l.waitFor(longTimeout, d.statusHas("Edgeway does not serve ", syscall.EADDRINUSE.Error()))
	l.must(answers(l.client, check, "program")())
	if err := d.hasCondition("follower-healthcheck", "")(); err == nil {
		t.Error("it counts as a fault of the health checks of all Services")
	}
	l.must(stop())
	l.waitFor(longTimeout, func() error {
		code, body, err := d.get(check, "/")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the health check port answers %d: %s", code, body)
		}
		return err
	})
}
