package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// In an update, a single new port replaces all ports of a Service that has 15,100 frontends. The daemon needs more than
// one transaction to remove the old frontends. The daemon must keep running and serve the Service.
func TestBigServiceChangesPortNames(t *testing.T) {
	for _, backend := range []string{"nftables", "iptables", "ebpf"} {
		t.Run(backend, func(t *testing.T) {
			l := newLab(t)
			d := l.newDaemon()
			d.configure(withBackend(backend))
			d.startReady()
			n := l.newNamespace()
			port := func(name string, number int32) corev1.ServicePort {
				return corev1.ServicePort{
					Name: name, Port: number, Protocol: corev1.ProtocolTCP,
					TargetPort: intstr.FromInt32(endpointPort),
				}
			}
			svc := n.createService("big", func(s *corev1.ServiceSpec) {
				s.Ports = []corev1.ServicePort{port("web", 1000)}
				for i := range int32(99) {
					s.Ports = append(s.Ports, port(fmt.Sprintf("p%d", i+1), 1001+i))
				}
				for i := range 150 {
					s.ExternalIPs = append(s.ExternalIPs, fmt.Sprintf("198.51.100.%d", 100+i))
				}
			})
			n.setEndpoints("big", ep1Addr)
			small, _ := n.createWeb("small")
			l.waitFor(longTimeout, answers(l.client, at(svc.Spec.ClusterIP, 1000), "ep1"))
			l.waitFor(longTimeout, answers(l.client, "198.51.100.249:1000", "ep1"))
			l.waitFor(longTimeout, answers(l.client, small, "ep1"))

			svc.Spec.Ports = []corev1.ServicePort{port("web", 9999)}
			_, err := sharedState.admin.Core.Services(n.name).Update(t.Context(), svc, metav1.UpdateOptions{})
			l.must(err)
			for _, addr := range []string{svc.Spec.ClusterIP, "198.51.100.100", "198.51.100.249"} {
				l.waitFor(longTimeout, answers(l.client, at(addr, 9999), "ep1"))
			}
			l.waitFor(longTimeout, isRefused(l.client, at(svc.Spec.ClusterIP, 1000)))
			l.must(answers(l.client, small, "ep1")())
			select {
			case <-d.ended:
				t.Error("the daemon has ended")
			default:
			}
			if d.logged(" panicked")() == nil {
				t.Error("a panic is in the log")
			}
		})
	}
}
