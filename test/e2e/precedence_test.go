package e2e

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/proxiers/plan"
)

// A tenant's Service must lose an address when the API server allocates the address as another Service's ClusterIP. The
// tenant's Service must also lose the address if the daemon starts without the API server.
func TestClusterIPPrecedesOtherAddresses(t *testing.T) {
	l, d := running(t)
	n := l.newNamespace()
	const addr = "10.96.77.55"
	tenant := n.createService("tenant", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"10.96.77.56"}
	})
	n.setEndpoints("tenant", ep1Addr)
	n.setLoadBalancer(tenant, addr)
	l.waitFor(longTimeout, answers(l.client, addr+":80", "ep1"))
	l.must(d.statusPrints("tenant: spec.externalIPs: 10.96.77.56 ")())

	n.createService("owner", func(s *corev1.ServiceSpec) { s.ClusterIP = addr })
	n.setEndpoints("owner", ep2Addr)
	l.waitFor(longTimeout, answers(l.client, addr+":80", "ep2"))
	l.waitFor(longTimeout, d.statusPrints("tenant: status.loadBalancer.ingress: "+addr+":80/TCP belongs to Service "+
		n.name+"/owner"))
	time.Sleep(time.Second) // the daemon writes the last-known state later than the rules
	d.stop()
	d.startReady()
	l.mustStay(time.Second, answers(l.client, addr+":80", "ep2"))
}

// If a Service's load-balancer address is one of the host's addresses, a program on the host must keep its port. The
// Service may take over the port only if the operator allows the address. The Service must never take over the daemon's
// own ports.
func TestLoadBalancerAddressOfHost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	l.must(l.node.Serve("sshd", netip.MustParseAddrPort("0.0.0.0:22"), plan.TCP))
	d.startReady()
	n := l.newNamespace()
	svc := n.createService("thief", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeLoadBalancer
		s.Ports[0].Port = 22
		s.Ports = append(s.Ports, corev1.ServicePort{
			Name: "health",
			Port: int32(netip.MustParseAddrPort(healthAddr).Port()), Protocol: corev1.ProtocolTCP,
		})
	})
	n.setEndpoints("thief", ep1Addr)
	n.setLoadBalancer(svc, nodeAddr)
	l.waitFor(longTimeout, answers(l.client, at(svc.Spec.ClusterIP, 22), "ep1"))
	l.waitFor(longTimeout, d.statusPrints("thief: status.loadBalancer.ingress: "+nodeAddr+" ", `"host"`,
		"proxy.allow_load_balancer_ips"))
	l.mustStay(time.Second, answers(l.client, at(nodeAddr, 22), "sshd"))

	d.configure("[proxy]\nallow_load_balancer_ips = [\"host\"]\n")
	d.signal(syscall.SIGHUP)
	l.waitFor(longTimeout, answers(l.client, at(nodeAddr, 22), "ep1"))
	l.must(d.statusPrints("health.address")())
	l.must(d.healthy())
}

// If a ServiceCIDR object covers one of the host's networks, the host must still reach its neighbors on that network.
func TestServiceCIDRCoveringHostNetwork(t *testing.T) {
	l, d := running(t)
	l.net.Host("near", netip.MustParseAddr("10.201.0.5"))
	l.onNode("ip", "addr", "add", "10.201.0.1/24", "dev", "near")
	const addr = "10.201.0.5:8080" // no program listens on this address, so the host sends a reset
	l.waitFor(longTimeout, isReset(l.node, addr))
	cidrs := sharedState.admin.Networking.ServiceCIDRs()
	_, err := cidrs.Create(t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "near"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.201.0.0/16"}},
	}, metav1.CreateOptions{})
	l.must(err)
	t.Cleanup(func() { _ = cidrs.Delete(cleanupContext(), "near", metav1.DeleteOptions{}) })
	l.waitFor(longTimeout, d.statusPrints("ServiceCIDR near: spec.cidrs: 10.201.0.0/16 ", "10.201.0.0/24"))
	l.waitFor(longTimeout, isReset(l.node, addr)) // the daemon may learn of the address after the ServiceCIDR
	l.mustStay(time.Second, isReset(l.node, addr))
}
