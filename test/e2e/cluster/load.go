package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// firstNodePort is the port of Service 0; every fifth Service has the next one, as long as there are any.
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// EndpointPort is the port of every endpoint that Load makes.
const EndpointPort = 8080

// parallel is how many API writes are under way at a time.
const parallel = 32

// Load is a set of Services in the namespace default, each with one EndpointSlice: of twenty, 16 are
// of type ClusterIP, 3 NodePort and 1 LoadBalancer; those whose number is so large that no NodePort is left are of
// type ClusterIP. All of it is IPv4 and TCP, and follows from the Service's number, which is less than 500,000, so that
// a test knows it without reading it back.
type Load struct {
	First, Services int // numbers of the Services: First ≤ i < First+Services
	Endpoints       int // of each Service
}

// ServiceName is the name of Service i and of its EndpointSlice.
func ServiceName(i int) string { return fmt.Sprintf("svc-%05d", i) }

// LabelTenth is a label of each Service and of its slice: the last digit of its number, so that a selector picks a
// tenth.
const LabelTenth = "edgeway.test/tenth"

// ServiceNumber gives the i of which name is ServiceName; false: it is another's name.
func ServiceNumber(name string) (i int, ok bool) {
	digits, ours := strings.CutPrefix(name, "svc-")
	i, err := strconv.Atoi(digits)
	return i, ours && err == nil
}

// ClusterIP is the address of Service i, whose port is 80.
func ClusterIP(i int) netip.Addr { return offset(netip.MustParseAddr("10.96.1.0"), i) }

// EndpointAddr is the address of endpoint j of Service i: one of 10.128.0.0/9, no two alike for j < 16.
func EndpointAddr(i, j int) netip.Addr { return offset(netip.MustParseAddr("10.128.0.0"), 16*i+j) }

func offset(base netip.Addr, n int) netip.Addr {
	raw := base.As4()
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(raw[:])+uint32(n))))
}

// AddService creates Service i of a Load through the API server, and returns when it is there.
func (c *Cluster) AddService(ctx context.Context, i int) error {
	svc := Service(i)
	services := c.admin.Core.Services(svc.Namespace)
	made, err := services.Create(ctx, svc, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("Service %s: %w", svc.Name, err)
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	made.Status = svc.Status
	if _, err := services.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("status of Service %s: %w", svc.Name, err)
	}
	return nil
}

// AddSlice creates an EndpointSlice through the API server.
func (c *Cluster) AddSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	if _, err := c.admin.Discovery.EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("EndpointSlice %s: %w", slice.Name, err)
	}
	return nil
}

// RemoveService deletes Service i of a Load and its slice.
func (c *Cluster) RemoveService(ctx context.Context, i int) error {
	name := ServiceName(i)
	if err := c.admin.Core.Services(corev1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("Service %s: %w", name, err)
	}
	if err := c.admin.Discovery.EndpointSlices(corev1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("EndpointSlice %s: %w", name, err)
	}
	return nil
}

// UpdateSlice writes an EndpointSlice that Slice made, whatever version is stored.
func (c *Cluster) UpdateSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	if _, err := c.admin.Discovery.EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("EndpointSlice %s: %w", slice.Name, err)
	}
	return nil
}

// UpdateSlices writes many slices at once.
func (c *Cluster) UpdateSlices(ctx context.Context, slices []*discoveryv1.EndpointSlice) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, s := range slices {
		group.Go(func() error { return c.UpdateSlice(ctx, s) })
	}
	return group.Wait()
}

// Slice is the EndpointSlice of Service i with that many endpoints, all ready.
func Slice(i, endpoints int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceDefault,
			Name:      ServiceName(i),
			Labels:    map[string]string{discoveryv1.LabelServiceName: ServiceName(i), LabelTenth: strconv.Itoa(i % 10)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(EndpointPort)),
		}},
	}
	for j := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{EndpointAddr(i, j).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			NodeName:   new(fmt.Sprintf("node-%03d", j)),
		})
	}
	return slice
}

// Service is Service i of a Load.
func Service(i int) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceDefault,
			Name:      ServiceName(i),
			Labels:    map[string]string{"app": ServiceName(i), LabelTenth: strconv.Itoa(i % 10)},
		},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  ClusterIP(i).String(),
			ClusterIPs: []string{ClusterIP(i).String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{
				Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(EndpointPort),
			}},
		},
	}
	nodePort := firstNodePort + i/5
	if i%5 > 0 || nodePort > lastNodePort {
		return svc
	}
	svc.Spec.Type = corev1.ServiceTypeNodePort
	svc.Spec.Ports[0].NodePort = int32(nodePort)
	if i%20 == 0 {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		vip := offset(netip.MustParseAddr("10.112.0.0"), i)
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vip.String()}}
	}
	return svc
}
