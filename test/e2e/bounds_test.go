package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/test/netlab"
)

func hugePorts(n int) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) {
		s.Ports = nil
		for i := range n {
			s.Ports = append(s.Ports, corev1.ServicePort{
				Name: fmt.Sprint("p", i), Port: int32(i + 1),
				Protocol: corev1.ProtocolTCP,
			})
		}
	}
}

func numberedAddrs(base string, n int) (out []string) {
	b := netip.MustParseAddr(base).As4()
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{b[0], b[1], b[2] + byte(i/250), byte(1 + i%250)}).String())
	}
	return out
}

// createHugeSlice creates an EndpointSlice for a Service with the ports that hugePorts(ports) sets.
func (n *namespace) createHugeSlice(service string, ports int, addrs []string) {
	n.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new(fmt.Sprint("p", i)),
			Port: new(int32(endpointPort)), Protocol: new(corev1.ProtocolTCP),
		})
	}
	for _, a := range addrs {
		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	_, err := sharedState.admin.Discovery.EndpointSlices(n.name).Create(n.t.Context(), slice, metav1.CreateOptions{})
	n.must(err)
}

// A Service must not affect other Services, even if it needs a million kernel elements or more memory than is
// available. The status must name the huge Service.
func TestHugeServicesAreLeftOut(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.env = append(d.env, "GOMEMLIMIT=40MiB")
	d.startReady()
	n := l.newNamespace()
	endpoints := n.createService("endpoints", hugePorts(1000))
	n.createHugeSlice("endpoints", 1000, append([]string{ep1Addr}, numberedAddrs("10.250.0.0", 999)...))
	n.createService("frontends", func(s *corev1.ServiceSpec) {
		hugePorts(500)(s)
		s.ExternalIPs = numberedAddrs("198.51.100.0", 2000)
	})
	n.createService("medium", hugePorts(100))
	n.createHugeSlice("medium", 100, numberedAddrs("10.251.0.0", 300))
	l.waitFor(longTimeout, d.hasCondition("services-too-big",
		fmt.Sprintf("%[1]s/endpoints, %[1]s/frontends, %[1]s/medium", n.name)))
	l.must(d.statusHas("endpoints: the combinations of the Service's endpoints, addresses and ports need 30",
		"more than the limit of 51.0 MB for one Service",
		"medium: the combinations of the Service's endpoints, addresses and ports need 9.2 MB of memory, but the memory limit allows only 8.4 MB", "MemoryMax=")())
	l.must(isUnanswered(l.client, at(endpoints.Spec.ClusterIP, 1000))())
	l.must(isUnanswered(l.client, "198.51.100.1:1")())
	clusterIP, _ := n.createWeb("benign")
	took := l.waitFor(longTimeout, answersSoon(l.client, clusterIP, "ep1"))
	t.Logf("a Service created afterwards is served after %.0f ms", took.Seconds()*1000)
}

// A Service must not use a forbidden address. Programs on the host must still receive broadcasts.
func TestServiceCannotTakeForbiddenAddresses(t *testing.T) {
	l, d := running(t)
	var dhcp net.PacketConn
	l.must(l.node.Do(func() (err error) {
		dhcp, err = net.ListenPacket("udp4", ":6767")
		return err
	}))
	defer dhcp.Close()
	n := l.newNamespace()
	taken := []string{
		"255.255.255.255", "192.0.2.255", "192.0.2.0", "192.0.2.1", "0.0.0.1", "240.0.0.1",
		"100.100.100.200", "192.0.0.192",
	}
	n.createService("greedy", func(s *corev1.ServiceSpec) {
		s.ExternalIPs = append([]string{"198.51.100.9"}, taken...)
		s.Ports = append(s.Ports, corev1.ServicePort{Name: "dhcp", Port: 6767, Protocol: corev1.ProtocolUDP})
	})
	n.setEndpoints("greedy", ep1Addr)
	l.waitFor(longTimeout, answers(l.client, "198.51.100.9:80", "ep1"))
	rules := l.onNode("nft", "list", "map", "ip", "edgeway", "services")
	for _, a := range taken {
		if strings.Contains(rules, " "+a+" ") {
			t.Errorf("%s is in the rules:\n%s", a, rules)
		}
	}
	l.must(d.statusPrints(" 192.0.2.255 ", " 192.0.2.1 ")())
	for _, to := range []string{"255.255.255.255:6767", "192.0.2.255:6767"} {
		l.sendBroadcast(to)
		l.must(hears(dhcp, to))
	}
}

// By default, Edgeway must not serve the external IPs of Services from the API server. The printed fix must allow only
// the external IP in question.
func TestExternalIPsNeedConsent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	l.must(os.Remove(d.externalIPs()))
	d.startReady()
	n := l.newNamespace()
	n.createService("external", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"198.51.100.99"} })
	n.setEndpoints("external", ep1Addr)
	const fix = `proxy.allow_external_ips = ["198.51.100.99/32"]`
	l.waitFor(longTimeout, d.statusPrints("external: spec.externalIPs: 198.51.100.99 ", "fix: "+fix))
	l.must(d.statusHas(": healthy")())
	l.must(isUnanswered(l.client, "198.51.100.99:80")())
	l.must(os.WriteFile(d.externalIPs(), []byte(fix+"\n"), 0o600))
	if out, errs, code := d.edgeway("reload"); code != 0 {
		t.Fatalf("reload ended with %d: %s%s", code, out, errs)
	}
	l.waitFor(longTimeout, answers(l.client, "198.51.100.99:80", "ep1"))
}

// An operator can restrict the load-balancer addresses and the endpoints of Services. By default, a host without a Node
// object cannot be an endpoint.
func TestOperatorRestrictions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	d.configure(`[proxy]
allow_load_balancer_ips = ["198.51.100.0/24"]
deny_endpoints = ["host", "10.244.2.0/24"]
`)
	d.startReady()
	n := l.newNamespace()
	svc := n.createService("fenced", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	n.setLoadBalancer(svc, "198.51.100.20", "198.18.0.20")
	n.setEndpoints("fenced", ep1Addr, ep2Addr, nodeAddr)
	l.waitFor(longTimeout, d.statusPrints(
		"198.18.0.20 ", "proxy.allow_load_balancer_ips",
		"endpoint "+ep2Addr+" of EndpointSlice fenced ", "proxy.deny_endpoints",
		"endpoint "+nodeAddr+" of EndpointSlice fenced "))
	l.waitFor(longTimeout, answers(l.client, "198.51.100.20:80", "ep1"))
	l.mustStay(time.Second, answers(l.client, "198.51.100.20:80", "ep1"))
	l.must(isUnanswered(l.client, "198.18.0.20:80")())
}

// The test records which inputs the API server (v1.36) admits. Edgeway must also reject the inputs that v1.36 rejects,
// because such inputs can come from manifests and from other versions of the API server.
func TestAPIServerAdmission(t *testing.T) {
	l := newLab(t)
	n := l.newNamespace()
	lb := n.createService("lb", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	dryRun := []string{metav1.DryRunAll}
	create := func(change func(*corev1.ServiceSpec), dryRun ...string) error {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "svc"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		change(&svc.Spec)
		_, err := sharedState.admin.Core.Services(n.name).Create(t.Context(), svc, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	wantAdmitted := func(what string, err error, want bool) {
		t.Helper()
		if err != nil && !apierrors.IsInvalid(err) || (err == nil) != want {
			t.Errorf("%s: admitted %v, want %v: %v", what, err == nil, want, err)
		}
	}
	for addr, want := range map[string]bool{
		"0.0.0.1": true, "240.0.0.1": true, "255.255.255.255": true, "192.0.2.255": true, "192.0.2.1": true,
		"100.100.100.200": true, "192.0.0.192": true, "fd00:ec2::254": true,
		"169.254.169.254": false, "127.0.0.1": false, "0.0.0.0": false, "224.0.0.1": false,
	} {
		wantAdmitted("external IP "+addr, create(func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{addr} },
			dryRun...), want)

		family := discoveryv1.AddressTypeIPv4
		if strings.Contains(addr, ":") {
			family = discoveryv1.AddressTypeIPv6
		}
		_, err := sharedState.admin.Discovery.EndpointSlices(n.name).Create(t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "slice"}, AddressType: family, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addr}}},
		}, metav1.CreateOptions{DryRun: dryRun})
		wantAdmitted("endpoint "+addr, err, want)

		status := lb.DeepCopy()
		status.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
		_, err = sharedState.admin.Core.Services(n.name).UpdateStatus(t.Context(), status,
			metav1.UpdateOptions{DryRun: dryRun})
		wantAdmitted("load-balancer address "+addr, err, true) // only controllers can write a Service's status
	}
	// A dry run does not allocate a NodePort. To learn whether the API server admits the port, the test must create the
	// Service.
	wantAdmitted("NodePort 22", create(func(s *corev1.ServiceSpec) {
		s.Type,
			s.Ports[0].NodePort = corev1.ServiceTypeNodePort, 22
	}), false)
	wantAdmitted("1,000 ports times 2,000 external IPs", create(func(s *corev1.ServiceSpec) {
		hugePorts(1000)(s)
		s.ExternalIPs = numberedAddrs("198.51.100.0", 2000)
	}, dryRun...), true)
}

const shellManifest = `apiVersion: v1
kind: Service
metadata: {name: shell, namespace: local}
spec:
  type: NodePort
  clusterIP: 10.96.200.200
  ports: [{name: web, port: 80, nodePort: 22}, {name: other, port: 81, nodePort: 30022}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shell, namespace: local, labels: {kubernetes.io/service-name: shell}}
addressType: IPv4
ports: [{name: web, port: 8080}, {name: other, port: 8080}]
endpoints: [{addresses: [10.244.1.11]}]
`

// Edgeway must not serve a NodePort outside nodeport_range if the Service comes from the API server. The status must be
// degraded, and the printed fix must extend nodeport_range to include the NodePort. A Service in a manifest may have
// any NodePort.
func TestNodePortRange(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	manifest := filepath.Join(d.dir, "shell.yaml")
	l.must(os.WriteFile(manifest, []byte(shellManifest), 0o600))
	files := fmt.Sprintf("[source.file]\npaths = [%q]\n", manifest)
	d.configure(files + "[proxy]\nnodeport_range = \"1000-2000\"\n")
	d.startReady()
	clusterIP, nodePort := l.newNamespace().createWeb("shop")
	l.waitFor(longTimeout, answers(l.client, clusterIP, "ep1"))
	l.waitFor(longTimeout, d.hasCondition("nodeport-range", "1000-2000"))
	// The printed range ends at the highest NodePort in the cluster, which all tests share.
	l.must(d.statusHas("DEGRADED", "proxy.nodeport_range = \"1000-3")())
	l.must(isUnanswered(l.client, nodePort)())
	l.must(answers(l.client, at(nodeAddr, 22), "ep1")())
	l.must(answers(l.client, at(nodeAddr, 30022), "ep1")())

	d.configure(files)
	if out, errs, code := d.edgeway("reload"); code != 0 {
		t.Fatalf("edgeway reload ended with %d: %s%s", code, out, errs)
	}
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	l.must(answers(l.client, at(nodeAddr, 22), "ep1")())
}

// sendBroadcast sends a datagram from the gateway to an address. The datagram contains the address as text.
func (l *lab) sendBroadcast(to string) {
	l.t.Helper()
	l.must(l.net.Gateway.Do(func() error {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netlab.GatewayAddr4, 0))
		conn, err := net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte(to))
		return err
	}))
}

func hears(conn net.PacketConn, text string) error {
	buffer := make([]byte, 100)
	if err := conn.SetReadDeadline(time.Now().Add(longTimeout)); err != nil {
		return err
	}
	n, _, err := conn.ReadFrom(buffer)
	if err == nil && string(buffer[:n]) != text {
		err = fmt.Errorf("got %q, want %q", buffer[:n], text)
	}
	return err
}
