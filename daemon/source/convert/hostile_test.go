package convert

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
)

func hostileService(addr string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: addr,
			ExternalIPs: []string{addr}, Ports: []corev1.ServicePort{{Port: 80}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: addr}}}},
	}
}

// An address that cannot belong to a host must be neither a frontend nor an endpoint. The address of a cloud's metadata
// service must not be a frontend, but can belong to a pod.
func TestForbiddenServiceAddresses(t *testing.T) {
	for addr, want := range map[string]struct{ frontend, endpoint bool }{
		"0.0.0.1":         {},
		"0.255.255.255":   {},
		"240.0.0.1":       {},
		"255.255.255.254": {},
		"255.255.255.255": {},
		"169.254.169.254": {},
		"fd00:ec2::254":   {false, true},
		"100.100.100.200": {false, true},
		"192.0.0.192":     {false, true},
		"168.63.129.16":   {false, true},
		"192.0.0.170":     {false, true},
		"fd20:ce::254":    {false, true},
		"fd00:42::42":     {false, true},
		"1.0.0.0":         {true, true},
		"223.255.255.255": {true, true},
		"fd00:ec2::255":   {true, true},
		"192.0.1.0":       {true, true},

		"::127.0.0.1":              {},
		"::192.0.2.1":              {},
		"::2":                      {},
		"::1:0:0":                  {true, true},
		"::ffff:10.1.0.1":          {},
		"fd00:c1::a9fe:a9fe":       {false, true},
		"64:ff9b::":                {},
		"64:ff9b::7f00:1":          {},
		"64:ff9b::169.254.169.254": {},
		"64:ff9b::224.0.0.1":       {},
		"64:ff9b::255.255.255.255": {},
		"64:ff9b::168.63.129.16":   {false, true},
		"64:ff9b::192.0.2.1":       {true, true},
		"64:ff9b::1:0:1":           {true, true},
	} {
		svc, _ := new(Converter).Service(hostileService(addr))
		count := len(svc.ClusterIPs) + len(svc.ExternalIPs) + len(svc.LoadBalancerIPs)
		if want.frontend && (count != 3 || len(svc.Faults) > 0) || !want.frontend &&
			(count != 0 || len(svc.Faults) != 3) {
			t.Errorf("%s as a frontend: got %+v", addr, svc)
		}
		family := discoveryv1.AddressTypeIPv4
		if strings.Contains(addr, ":") {
			family = discoveryv1.AddressTypeIPv6
		}
		slice, _ := new(Converter).EndpointSlice(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "svc-1", Labels: map[string]string{api.LabelServiceName: "svc"}},
			AddressType: family, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addr}}},
		})
		if got := len(slice.Endpoints) == 1; got != want.endpoint || (len(slice.Faults) == 0) != want.endpoint {
			t.Errorf("%s as an endpoint: got %+v", addr, slice)
		}
	}
}

// Validate rejects forbidden frontends, because a version of Edgeway that accepted more addresses may have saved the
// last-known state.
func TestForbiddenFrontendsInLastKnownState(t *testing.T) {
	for _, addr := range []string{"240.0.0.1", "::2", "168.63.129.16", "192.0.0.170", "64:ff9b::168.63.129.16"} {
		list := []netip.Addr{netip.MustParseAddr(addr)}
		for kind, saved := range map[string]source.Service{
			"ClusterIP": {ClusterIPs: list}, "external IP": {ExternalIPs: list},
			"load-balancer address": {LoadBalancerIPs: list},
		} {
			saved.Namespace, saved.Name = "ns", "svc"
			if Validate(&saved) == nil {
				t.Errorf("%s %s is accepted", kind, addr)
			}
		}
	}
}

// A ServiceCIDR must not overlap forbidden addresses, because Edgeway drops packets to a ServiceCIDR's unused
// addresses.
func TestForbiddenServiceCIDRs(t *testing.T) {
	for cidr, want := range map[string]bool{
		"0.0.0.0/0": false, "0.0.0.0/1": false, "128.0.0.0/1": false, "::/0": false, "::/1": false, "8000::/1": false,
		"127.0.0.0/8": false, "169.254.169.0/24": false, "fe80::/64": false, "::/96": false,
		"10.0.0.0/8": true, "192.0.2.0/24": true, "fd00::/8": true, "2001:db8::/108": true,
	} {
		out := new(Converter).ServiceCIDR(&networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "cidr"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}},
		})
		if got := len(out.CIDRs) == 1; got != want || (len(out.Faults) == 0) != want {
			t.Errorf("%s: got %+v", cidr, out)
		}
		saved := &source.ServiceCIDR{Name: "cidr", CIDRs: []netip.Prefix{netip.MustParsePrefix(cidr)}}
		if err := Validate(saved); (err == nil) != want {
			t.Errorf("%s in the last-known state: %v", cidr, err)
		}
	}
}

func crowdedService(n int) *corev1.Service {
	s := hostileService("10.96.0.1")
	for i := range n {
		addr := fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, addr)
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, addr+"/32")
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr})
	}
	return s
}

// cpuTime returns the CPU time of the fastest of three calls to f. Other programs do not affect a thread's CPU time.
func cpuTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := time.Hour
	for range 3 {
		var before, after unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &before)
		f()
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &after)
		least = min(least, time.Duration(after.Utime.Nano()-before.Utime.Nano()+after.Stime.Nano()-before.Stime.Nano()))
	}
	return least
}

func TestConversionIsLinear(t *testing.T) {
	small, large := crowdedService(3000), crowdedService(30000)
	few := cpuTime(func() { new(Converter).Service(small) })
	many := cpuTime(func() { new(Converter).Service(large) })
	if many > 40*max(few, 5*time.Millisecond) { // the kernel may measure CPU time in ticks of 4 ms
		t.Errorf("3,000 addresses take %v, 30,000 take %v", few, many)
	}
}

func BenchmarkConvertServiceWithAddresses(b *testing.B) {
	for _, n := range []int{1000, 5000, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := crowdedService(n)
			b.ReportAllocs()
			for b.Loop() {
				new(Converter).Service(in)
			}
		})
	}
}

// The largest slice in the benchmark has the maximum number of ports and endpoints that the Kubernetes API allows.
func BenchmarkConvertSliceWithPorts(b *testing.B) {
	for _, n := range []int{1000, 5000, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "svc-1", Labels: map[string]string{api.LabelServiceName: "svc"}},
				AddressType: discoveryv1.AddressTypeIPv4,
			}
			for i := range n {
				in.Ports = append(in.Ports, discoveryv1.EndpointPort{
					Name: new(fmt.Sprint("p", i)),
					Port: new(int32(i + 1)),
				})
			}
			for i := range maxEndpoints {
				in.Endpoints = append(in.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d",
					i>>8, i&0xff)}})
			}
			b.ReportAllocs()
			for b.Loop() {
				new(Converter).EndpointSlice(in)
			}
		})
	}
}
