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

// firstNodePort is the NodePort of Service 0. Every fifth Service gets the next NodePort, up to lastNodePort.
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// EndpointPort is the port of every endpoint of a Load.
const EndpointPort = 8080

// maxParallelWrites is the maximum number of concurrent writes to the API server.
const maxParallelWrites = 32

// Load is a set of Services in the default namespace, each with one EndpointSlice. Of every 20 Services, 16 are of type
// ClusterIP, 3 of type NodePort and 1 of type LoadBalancer. When no NodePort is free, all further Services are of type
// ClusterIP. All objects use IPv4 and TCP. A Service's number must be less than 500,000. The number determines the
// contents of the Service's objects, so a test need not read the objects back.
type Load struct {
	First, Services int // the Services are numbered from First to First+Services-1
	Endpoints       int // the number of endpoints per Service
}

// ServiceName returns the name that Service i and its EndpointSlice share.
func ServiceName(i int) string { return fmt.Sprintf("svc-%05d", i) }

// LabelTenth is the key of a label on each Service and its EndpointSlice. The label's value is the last digit of the
// Service's number, so a label selector can match a tenth of the Services.
const LabelTenth = "edgeway.test/tenth"

// ServiceNumber is the inverse of ServiceName. ok is false unless name consists of "svc-" and a number.
func ServiceNumber(name string) (i int, ok bool) {
	digits, ours := strings.CutPrefix(name, "svc-")
	i, err := strconv.Atoi(digits)
	return i, ours && err == nil
}

// ClusterIP returns the ClusterIP of Service i. Every Service uses port 80.
func ClusterIP(i int) netip.Addr { return offset(netip.MustParseAddr("10.96.1.0"), i) }

// EndpointAddr returns the address of endpoint j of Service i, in 10.128.0.0/9. The addresses are unique if j is always
// less than 16.
func EndpointAddr(i, j int) netip.Addr { return offset(netip.MustParseAddr("10.128.0.0"), 16*i+j) }

func offset(base netip.Addr, n int) netip.Addr {
	raw := base.As4()
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(raw[:])+uint32(n))))
}

// AddService creates Service i of a Load through the API server.
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
	if _, err := c.admin.Discovery.EndpointSlices(slice.Namespace).Create(ctx, slice,
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("EndpointSlice %s: %w", slice.Name, err)
	}
	return nil
}

// RemoveService deletes Service i of a Load and its EndpointSlice.
func (c *Cluster) RemoveService(ctx context.Context, i int) error {
	name := ServiceName(i)
	if err := c.admin.Core.Services(corev1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("Service %s: %w", name, err)
	}
	if err := c.admin.Discovery.EndpointSlices(corev1.NamespaceDefault).Delete(ctx, name,
		metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("EndpointSlice %s: %w", name, err)
	}
	return nil
}

// UpdateSlice replaces an EndpointSlice, regardless of its resource version in the API server.
func (c *Cluster) UpdateSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	if _, err := c.admin.Discovery.EndpointSlices(slice.Namespace).Update(ctx, slice,
		metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("EndpointSlice %s: %w", slice.Name, err)
	}
	return nil
}

// UpdateSlices replaces EndpointSlices in parallel.
func (c *Cluster) UpdateSlices(ctx context.Context, slices []*discoveryv1.EndpointSlice) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelWrites)
	for _, s := range slices {
		group.Go(func() error { return c.UpdateSlice(ctx, s) })
	}
	return group.Wait()
}

// Slice returns the EndpointSlice of Service i with the given number of ready endpoints.
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

// Service returns Service i of a Load.
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
