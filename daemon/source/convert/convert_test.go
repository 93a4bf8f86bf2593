package convert

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func parse[T any](t *testing.T, manifest string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), out); err != nil {
		t.Fatalf("parse manifest: %v\n%s", err, manifest)
	}
	return out
}

func fields(problems []fault.Fault) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Field)
	}
	return out
}

var equateAddrs = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestServiceWithEveryField(t *testing.T) {
	in := parse[corev1.Service](t, `
metadata:
  namespace: shop
  name: web
  uid: 0c5e
  creationTimestamp: "2026-01-02T03:04:05Z"
  annotations: {edgeway.io/traffic-hint: LongLived}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, "fd00::10"]
  ipFamilies: [IPv4, IPv6]
  externalIPs: [192.0.2.1, "", 192.0.2.1]
  loadBalancerSourceRanges: [" 198.51.100.77/24 ", "2001:db8::/32"]
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  internalTrafficPolicy: Local
  externalTrafficPolicy: Local
  healthCheckNodePort: 31000
  ports:
  - {name: http, protocol: TCP, port: 80, nodePort: 30080}
  - {name: dns, protocol: UDP, port: 80}
status:
  loadBalancer:
    ingress:
    - {ip: 203.0.113.1}
    - {ip: 203.0.113.2, ipMode: VIP}
    - {ip: 203.0.113.3, ipMode: Proxy}
    - {hostname: lb.example}
`)
	want := &source.Service{
		Namespace: "shop", Name: "web", UID: "0c5e",
		Created:         time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		ClusterIPs:      addrs("10.96.0.10", "fd00::10"),
		ExternalIPs:     addrs("192.0.2.1"),
		LoadBalancerIPs: addrs("203.0.113.1", "203.0.113.2"),
		SourceRanges:    prefixes("198.51.100.0/24", "2001:db8::/32"),
		Ports: []source.ServicePort{
			{Name: "http", Protocol: plan.TCP, Port: 80, NodePort: 30080},
			{Name: "dns", Protocol: plan.UDP, Port: 80},
		},
		Affinity: time.Minute, InternalLocal: true, ExternalLocal: true,
		HealthCheckNodePort: 31000, LongLived: true,
	}
	got, ok := new(Converter).Service(in)
	if !ok {
		t.Fatal("the Service is not ours")
	}
	if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
		t.Errorf("converted Service (-want +got):\n%s", diff)
	}
	if err := Validate(got); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestUnproxiedServicesAreSkipped(t *testing.T) {
	for name, spec := range map[string]string{
		"headless":     `{spec: {clusterIP: None}}`,
		"no address":   `{spec: {clusterIP: ""}}`,
		"ExternalName": `{spec: {type: ExternalName, clusterIP: 10.96.0.1}}`,
		"other proxy":  `{metadata: {labels: {service.kubernetes.io/service-proxy-name: ""}}, spec: {clusterIP: 10.96.0.1}}`,
	} {
		if got, ok := new(Converter).Service(parse[corev1.Service](t, spec)); ok {
			t.Errorf("%s: converted to %+v", name, got)
		}
	}
}

// Each case makes one field of a valid Service invalid. The resulting fault must name the invalid field, and the other
// ports must stay valid.
func TestServiceFaultKeepsValidFields(t *testing.T) {
	good := func() *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
				Ports: []corev1.ServicePort{{Name: "a", Port: 80, Protocol: "TCP"}, {Name: "b", Port: 81, Protocol: "TCP"}},
			},
		}
	}
	proxyMode := corev1.LoadBalancerIPMode("Tunnel")
	seconds := int32(86401)
	cases := map[string]struct {
		spoil func(*corev1.Service)
		field string
	}{
		"port 0":                   {func(s *corev1.Service) { s.Spec.Ports[1].Port = 0 }, "spec.ports[1].port"},
		"port 65536":               {func(s *corev1.Service) { s.Spec.Ports[1].Port = 65536 }, "spec.ports[1].port"},
		"negative port":            {func(s *corev1.Service) { s.Spec.Ports[1].Port = -1 }, "spec.ports[1].port"},
		"nodePort 65536":           {func(s *corev1.Service) { s.Spec.Ports[1].NodePort = 65536 }, "spec.ports[1].nodePort"},
		"protocol":                 {func(s *corev1.Service) { s.Spec.Ports[1].Protocol = "ICMP" }, "spec.ports[1].protocol"},
		"port name":                {func(s *corev1.Service) { s.Spec.Ports[1].Name = `b" ; drop` }, "spec.ports[1].name"},
		"second unnamed port":      {func(s *corev1.Service) { s.Spec.Ports[1].Name = "" }, "spec.ports[1].name"},
		"repeated name":            {func(s *corev1.Service) { s.Spec.Ports[1].Name = "a" }, "spec.ports[1].name"},
		"repeated port":            {func(s *corev1.Service) { s.Spec.Ports[1].Port = 80 }, "spec.ports[1]"},
		"IPv4-mapped cluster IP":   {func(s *corev1.Service) { s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "::ffff:10.96.0.2") }, "spec.clusterIPs[1]"},
		"no cluster IP":            {func(s *corev1.Service) { s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "10.96.0") }, "spec.clusterIPs[1]"},
		"two of a family":          {func(s *corev1.Service) { s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "10.96.0.2") }, "spec.clusterIPs[1]"},
		"family mismatch":          {func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{"IPv6"} }, "spec.clusterIPs[0]"},
		"clusterIPs without first": {func(s *corev1.Service) { s.Spec.ClusterIPs[0] = "10.96.0.9" }, "spec.clusterIPs"},
		"external loopback":        {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"127.0.0.1"} }, "spec.externalIPs[0]"},
		"external link-local":      {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"fe80::1"} }, "spec.externalIPs[0]"},
		"external with zone":       {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"2001:db8::1%eth0"} }, "spec.externalIPs[0]"},
		"external multicast":       {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"239.1.1.1"} }, "spec.externalIPs[0]"},
		"external unspecified":     {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"0.0.0.0"} }, "spec.externalIPs[0]"},
		"load balancer loopback": {func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "::1"}}
		}, "status.loadBalancer.ingress[0].ip"},
		"load balancer mode": {func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: &proxyMode}}
		}, "status.loadBalancer.ingress[0].ipMode"},
		"source range": {func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/33"} }, "spec.loadBalancerSourceRanges[0]"},
		"affinity":     {func(s *corev1.Service) { s.Spec.SessionAffinity = "Cookie" }, "spec.sessionAffinity"},
		"affinity time": {func(s *corev1.Service) {
			s.Spec.SessionAffinity = "ClientIP"
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
			}
		}, "spec.sessionAffinityConfig.clientIP.timeoutSeconds"},
		"external policy":   {func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = "Nearest" }, "spec.externalTrafficPolicy"},
		"health check port": {func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = "Local" }, "spec.healthCheckNodePort"},
		"type":              {func(s *corev1.Service) { s.Spec.Type = "Magic" }, "spec.type"},
		"traffic hint":      {func(s *corev1.Service) { s.Annotations = map[string]string{api.AnnotationTrafficHint: "Short"} }, "metadata.annotations[" + api.AnnotationTrafficHint + "]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := good()
			c.spoil(in)
			got, ok := new(Converter).Service(in)
			if !ok {
				t.Fatal("the Service is not ours")
			}
			if diff := cmp.Diff([]string{c.field}, fields(got.Faults)); diff != "" {
				t.Errorf("faulty fields (-want +got):\n%s%v", diff, got.Faults)
			}
			if len(got.Ports) == 0 || got.Ports[0].Port != 80 {
				t.Errorf("the good port is gone: %+v", got.Ports)
			}
			if err := Validate(got); err != nil {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

func TestServiceWithInvalidNameHasOnlyFault(t *testing.T) {
	got, ok := new(Converter).Service(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a\nb"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if !ok || len(got.Ports) != 0 || len(got.ClusterIPs) != 0 {
		t.Fatalf("got %+v, %v", got, ok)
	}
	if diff := cmp.Diff([]string{"metadata.name"}, fields(got.Faults)); diff != "" {
		t.Error(diff)
	}
	if Validate(got) == nil {
		t.Error("Check accepts it")
	}
}

func TestInvalidSourceRangeBlocksFamily(t *testing.T) {
	v4, v6 := plan.IPv4, plan.IPv6
	for _, c := range []struct {
		ranges []string
		closed []plan.Family
		open   []netip.Prefix
	}{
		{[]string{"10.0.0.0/8"}, nil, prefixes("10.0.0.0/8")},
		{[]string{"10.0.0.0/33"}, []plan.Family{v4}, nil},
		{[]string{"10.0.0.0/33", "192.0.2.0/24"}, nil, prefixes("192.0.2.0/24")},
		{[]string{"2001:db8::/129", "192.0.2.0/24"}, []plan.Family{v6}, prefixes("192.0.2.0/24")},
		{[]string{"everyone"}, []plan.Family{v4, v6}, nil},
		{[]string{"010.0.0.0/08"}, nil, prefixes("10.0.0.0/8")},
		{[]string{"0.0.0.0/0"}, nil, prefixes("0.0.0.0/0")},
	} {
		got, _ := new(Converter).Service(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1",
				Ports: []corev1.ServicePort{{Port: 80}}, LoadBalancerSourceRanges: c.ranges,
			},
		})
		if diff := cmp.Diff(c.closed, got.BlockedFamilies); diff != "" {
			t.Errorf("%q: closed families (-want +got):\n%s", c.ranges, diff)
		}
		if diff := cmp.Diff(c.open, got.SourceRanges, equateAddrs); diff != "" {
			t.Errorf("%q: ranges (-want +got):\n%s", c.ranges, diff)
		}
	}
}

func TestParseAddrMatchesAPIServer(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1":       "10.0.0.1",
		"010.000.0.001":  "10.0.0.1",
		"2001:DB8::0001": "2001:db8::1",
		"10.0.0.256":     "",
		"10.0.0":         "",
		"10.0.0.":        "",
		"1.2.3.4.5":      "",
		"0x10.0.0.1":     "",
		"::ffff:1.2.3.4": "",
		"fe80::1%lo":     "",
		" 10.0.0.1":      "",
		"":               "",
	} {
		got, err := parseAddr(in)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("parseAddr(%q) = %v, %v; want %q", in, got, err, want)
		}
	}
}

func TestNode(t *testing.T) {
	got := new(Converter).Node(parse[corev1.Node](t, `
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: Zone_a}}
spec:
  podCIDRs: [10.244.1.0/24, nonsense, "fd00:1::/64"]
  taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]
status:
  addresses:
  - {type: ExternalIP, address: 198.51.100.1}
  - {type: Hostname, address: node-1}
  - {type: InternalIP, address: 192.0.2.1}
  - {type: InternalIP, address: 127.0.0.1}
`))
	want := &source.Node{
		Name: "node-1", Zone: "Zone_a", Leaving: true,
		Addresses: addrs("192.0.2.1", "198.51.100.1"), PodCIDRs: prefixes("10.244.1.0/24", "fd00:1::/64"),
	}
	if diff := cmp.Diff(want, got, equateAddrs, cmpopts.IgnoreFields(source.Node{}, "Faults")); diff != "" {
		t.Errorf("Node (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"status.addresses[3].address", "spec.podCIDRs[1]"}, fields(got.Faults)); diff != "" {
		t.Error(diff)
	}
}

func TestShareStrings(t *testing.T) {
	var c Converter
	a := c.share(strings.Clone("node-1"))
	if b := c.share(strings.Clone("node-1")); !sameData(a, b) {
		t.Error("equal strings have different bytes")
	}
	for i := range maxShared * 2 {
		c.share(strings.Repeat("x", i%7) + time.Duration(i).String())
	}
	if len(c.strings) > maxShared {
		t.Errorf("the table has grown to %d", len(c.strings))
	}
}
