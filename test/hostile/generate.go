package hostile

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Choices uses a fuzzer's bytes to select list entries. Once all bytes are used, Number returns 0. Every prefix of a
// valid input is therefore also valid.
type Choices struct{ rest []byte }

// NewChoices returns a Choices that reads from b.
func NewChoices(b []byte) *Choices { return &Choices{b} }

// HasBytes reports whether any bytes remain.
func (c *Choices) HasBytes() bool { return len(c.rest) > 0 }

// Number returns a number from 0 to limit-1.
func (c *Choices) Number(limit int) int {
	if len(c.rest) == 0 {
		return 0
	}
	n := int(c.rest[0])
	c.rest = c.rest[1:]
	return n % limit
}

func pick[T any](c *Choices, list ...T) T { return list[c.Number(len(list))] }

// randomValues returns a random number of random values, up to the given maximum.
func randomValues[T any](c *Choices, most int, one func(*Choices) T) (out []T) {
	for range c.Number(most + 1) {
		out = append(out, one(c))
	}
	return out
}

// Objects returns objects with only a few different names, addresses and ports, so conflicts are frequent.
func (c *Choices) Objects() (out []any) {
	for c.HasBytes() && len(out) < 12 {
		switch c.Number(8) {
		case 0, 1, 2:
			out = append(out, c.service())
		case 3, 4, 5:
			out = append(out, c.slice())
		case 6:
			out = append(out, c.node())
		default:
			out = append(out, &networkingv1.ServiceCIDR{
				ObjectMeta: metav1.ObjectMeta{Name: pick(c, "a", "b")}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: randomValues(c, 3, prefix)},
			})
		}
	}
	return out
}

func (c *Choices) service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns",
		Name: pick(c, "a", "b", "c", "s23456789012345678901234567890123456789012345678901234567890123",
			hostileText(c)),
	}}
	s.Spec = corev1.ServiceSpec{
		Type:        pick(c, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP, "", corev1.ServiceType(hostileText(c))),
		ClusterIP:   pick(c, "10.96.0.1", "10.96.0.2", "fd00:10:96::1", address(c)),
		ExternalIPs: randomValues(c, 3, address), LoadBalancerSourceRanges: randomValues(c, 4, prefix),
		Ports:                 randomValues(c, 4, port),
		SessionAffinity:       pick(c, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityClientIP, corev1.ServiceAffinity(hostileText(c))),
		ExternalTrafficPolicy: pick(c, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal, "", corev1.ServiceExternalTrafficPolicy(hostileText(c))),
		InternalTrafficPolicy: new(pick(c, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal, "")),
		HealthCheckNodePort:   number(c),
	}
	if c.Number(2) == 1 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, pick(c, "fd00:10:96::2", address(c))}
	}
	if c.Number(2) == 1 {
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(pick(c, 10, 86400, number(c)))},
		}
	}
	for _, ip := range randomValues(c, 3, address) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	if c.Number(2) == 1 {
		s.Annotations = map[string]string{"edgeway.io/traffic-hint": pick(c, "LongLived", hostileText(c))}
	}
	return s
}

func port(c *Choices) corev1.ServicePort {
	p := corev1.ServicePort{
		Protocol: protocol(c), Port: pick(c, 80, 81, 65535, number(c)),
		NodePort: pick(c, 0, 30080, 30081, number(c)),
	}
	p.Name = pick(c, fmt.Sprintf("p%d", p.Port), "", "a", hostileText(c))
	return p
}

func protocol(c *Choices) corev1.Protocol {
	return pick(c, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, "", corev1.Protocol(hostileText(c)))
}

func (c *Choices) slice() *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: pick(c, "x", "y", "z")}}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: pick(c, "a", "b", "c",
		"s23456789012345678901234567890123456789012345678901234567890123", hostileText(c))}
	s.AddressType = pick(c,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressType(hostileText(c)))
	s.Ports = randomValues(c, 4, func(c *Choices) discoveryv1.EndpointPort {
		p := discoveryv1.EndpointPort{Protocol: new(protocol(c)), Port: new(pick(c, 8080, 80, 65535, number(c)))}
		p.Name = new(pick(c, "p80", "p81", "", "a", hostileText(c)))
		return p
	})
	s.Endpoints = randomValues(c, 6, func(c *Choices) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{pick(c, "10.1.0.1", "10.1.0.2", "fd00:1::1", "fd00:1::2",
			address(c))}}
		e.NodeName = new(pick(c, "there", "here", hostileText(c)))
		flag := func() *bool { return pick(c, nil, new(true), new(false)) }
		e.Conditions = discoveryv1.EndpointConditions{Ready: flag(), Serving: flag(), Terminating: flag()}
		return e
	})
	return s
}

func (c *Choices) node() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
	n.Spec.PodCIDRs = randomValues(c, 3, prefix)
	for _, a := range randomValues(c, 3, address) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func address(c *Choices) string {
	return pick(c, "203.0.113.1", "203.0.113.2", "2001:db8:1::1", "10.96.0.1", "fd00:10:96::1", "192.0.2.1",
		"192.0.2.10", "2001:db8::1",
		"192.0.2.255", "192.0.2.0", "192.0.2.254", "2001:db8::fffe",
		"255.255.255.255", "0.0.0.0", "0.1.2.3", "240.0.0.1", "224.0.0.1", "127.0.0.1", "127.1", "::1", "::", "ff02::1",
		"fe80::1",
		"fe80::1%eth0", "2001:db8:1::1%eth0", "::ffff:203.0.113.1", "::ffff:127.0.0.1", "::203.0.113.1", "64:ff9b::1",
		"169.254.169.254",
		"fd00:ec2::254", "100.100.100.200", "192.0.0.192", "203.0.113.001", "203.0.113.08", "", hostileText(c))
}

func prefix(c *Choices) string {
	return pick(c, "10.0.0.0/8", "192.0.2.0/24", "fd00::/8", "2001:db8::/32", "10.96.0.0/12", "fd00:10:96::/112",
		"0.0.0.0/0", "::/0",
		"0.0.0.0/1", "128.0.0.0/1", "8000::/1", "255.255.255.255/32", "192.0.2.1/24", "10.1.2.3/32", "2001:db8::1/128",
		"::ffff:10.0.0.0/104",
		"fe80::%eth0/64", "127.0.0.0/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0", "", hostileText(c))
}

func number(c *Choices) int32 {
	return pick[int32](c, 0, 1, 22, 80, 6443, 10249, 30080, 32767, 65535, 65536, -1, -2147483648, 2147483647,
		int32(c.Number(256))<<8|int32(c.Number(256)))
}

// hostileText returns text that may break out of a rule, a line or a terminal.
func hostileText(c *Choices) string {
	return pick(c, "", "-", "a.b", "A", "ü", "a b", "a;b", "a\"b", "a\nb", "\x1b[2J", "\x00", "a}b", "$(a)", "\u202ea",
		"\xff", "-A INPUT -j DROP",
		"s234567890123456789012345678901234567890123456789012345678901234")
}
