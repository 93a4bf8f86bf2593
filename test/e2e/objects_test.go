package e2e

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// namespaceCount is the number of namespaces created so far, and is part of the name of each new namespace.
var namespaceCount atomic.Int32

type namespace struct {
	*lab
	name string
}

// newNamespace creates a namespace. The test deletes the namespace's Services at the end. The namespace itself remains,
// because the control plane has no namespace controller.
func (l *lab) newNamespace() *namespace {
	l.t.Helper()
	n := &namespace{lab: l, name: fmt.Sprintf("test-%d", namespaceCount.Add(1))}
	_, err := sharedState.admin.Core.Namespaces().Create(l.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name}}, metav1.CreateOptions{})
	l.must(err)
	return n
}

// createService creates a Service with TCP port 80 and UDP port 53, both with the target port endpointPort.
func (n *namespace) createService(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	n.t.Helper()
	made, err := n.tryService(name, change)
	n.must(err)
	return made
}

// tryService is like createService, but returns an error if the API server rejects the Service.
func (n *namespace) tryService(name string, change func(*corev1.ServiceSpec)) (*corev1.Service, error) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
			{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(endpointPort)},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(endpointPort)},
		}},
	}
	if change != nil {
		change(&svc.Spec)
	}
	made, err := sharedState.admin.Core.Services(n.name).Create(n.t.Context(), svc, metav1.CreateOptions{})
	if err == nil {
		n.t.Cleanup(func() { n.remove(name) })
	}
	return made, err
}

func (n *namespace) remove(name string) {
	n.t.Helper()
	ctx := cleanupContext()
	if err := sharedState.admin.Core.Services(n.name).Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		n.t.Error(err)
	}
	if err := sharedState.admin.Discovery.EndpointSlices(n.name).Delete(ctx, name,
		metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		n.t.Error(err)
	}
}

// setEndpoints writes a Service's EndpointSlice. All endpoints are ready, and none of them has a node name.
func (n *namespace) setEndpoints(service string, addrs ...string) {
	n.t.Helper()
	n.endpointsOn(service, "", addrs...)
}

func (n *namespace) endpointsOn(service, node string, addrs ...string) {
	n.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("web"), Port: new(int32(endpointPort)), Protocol: new(corev1.ProtocolTCP)},
			{Name: new("dns"), Port: new(int32(endpointPort)), Protocol: new(corev1.ProtocolUDP)},
		},
	}
	for _, a := range addrs {
		e := discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}
		if node != "" {
			e.NodeName = &node
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	slices := sharedState.admin.Discovery.EndpointSlices(n.name)
	_, err := slices.Create(n.t.Context(), slice, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = slices.Update(n.t.Context(), slice, metav1.UpdateOptions{})
	}
	n.must(err)
}

// createWeb creates a NodePort Service with the endpoint ep1, and returns the TCP addresses of the ClusterIP and of the
// NodePort.
func (n *namespace) createWeb(name string) (clusterIP, nodePort string) {
	n.t.Helper()
	svc := n.createService(name, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	n.setEndpoints(name, ep1Addr)
	return at(svc.Spec.ClusterIP, 80), at(nodeAddr, int(svc.Spec.Ports[0].NodePort))
}

func at(addr string, port int) string { return net.JoinHostPort(addr, strconv.Itoa(port)) }

// setLoadBalancer assigns load-balancer addresses to the Service, as a cloud controller does.
func (n *namespace) setLoadBalancer(svc *corev1.Service, addrs ...string) {
	n.t.Helper()
	svc = svc.DeepCopy()
	for _, a := range addrs {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	_, err := sharedState.admin.Core.Services(n.name).UpdateStatus(n.t.Context(), svc, metav1.UpdateOptions{})
	n.must(err)
}
