package convert

import (
	corev1 "k8s.io/api/core/v1"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// protocolPort combines a protocol and a port number. The combination must be unique within a Service.
type protocolPort struct {
	protocol plan.Protocol
	port     uint16
}

func (b *serviceBuilder) readPorts() {
	ports := b.in.Spec.Ports
	if len(ports) == 0 {
		b.Addf("spec.ports", "at least one port is required")
		return
	}
	names := make(map[string]bool, len(ports))
	used := make(map[protocolPort]bool, len(ports))
	nodePorts := make(map[protocolPort]bool)
	b.out.Ports = make([]source.ServicePort, 0, len(ports))
	for i := range ports {
		field := at("spec.ports", i)
		p, ok := b.readPort(field, &ports[i])
		if !ok || b.isRepeatedName(names, field, p.Name) {
			continue
		}
		if used[protocolPort{p.Protocol, p.Port}] {
			b.Addf(field, "%d/%s is a duplicate", p.Port, p.Protocol)
			continue
		}
		names[p.Name], used[protocolPort{p.Protocol, p.Port}] = true, true
		if np := (protocolPort{p.Protocol, p.NodePort}); p.NodePort != 0 {
			if nodePorts[np] {
				b.Addf(field+".nodePort", "%d/%s is a duplicate", p.NodePort, p.Protocol)
				p.NodePort = 0
			}
			nodePorts[np] = true
		}
		b.out.Ports = append(b.out.Ports, p)
	}
}

// isRepeatedName reports whether another port of the object has the same name. If so, isRepeatedName adds a fault.
func (f *faults) isRepeatedName(names map[string]bool, field, name string) bool {
	if names[name] {
		f.Addf(field+".name", "another port has the name %q", name)
	}
	return names[name]
}

func (b *serviceBuilder) readPort(field string, in *corev1.ServicePort) (p source.ServicePort, ok bool) {
	switch {
	case in.Name == "" && len(b.in.Spec.Ports) > 1:
		b.Addf(field+".name", "a name is required if there are several ports")
		return p, false
	case in.Name != "" && !isLabel(in.Name):
		b.Addf(field+".name", "%.64q is not a DNS label", in.Name)
		return p, false
	}
	p.Name = b.share(in.Name)
	if p.Protocol, ok = parseProtocol(in.Protocol); !ok {
		b.Addf(field+".protocol", "%.64q is not TCP, UDP or SCTP", in.Protocol)
		return p, false
	}
	if p.Port, ok = parsePort(in.Port); !ok {
		b.Addf(field+".port", "%d is not in the range 1 to 65535", in.Port)
		return p, false
	}
	p.NodePort = b.readNodePort(field+".nodePort", in.NodePort)
	return p, true
}

func (b *serviceBuilder) readNodePort(field string, n int32) uint16 {
	if n == 0 {
		return 0
	}
	port, ok := parsePort(n)
	if !ok {
		b.Addf(field, "%d is not in the range 1 to 65535", n)
		return 0
	}
	if b.typ == corev1.ServiceTypeClusterIP {
		b.Addf(field, "a NodePort is not allowed for a Service of type ClusterIP")
		return 0
	}
	return port
}

// An empty protocol means TCP, as in the Kubernetes API.
func parseProtocol(p corev1.Protocol) (plan.Protocol, bool) {
	if p == "" {
		return plan.TCP, true
	}
	return plan.ParseProtocol(string(p))
}

func (b *serviceBuilder) readPolicies() {
	spec := &b.in.Spec
	if p := spec.InternalTrafficPolicy; p != nil {
		b.out.InternalLocal = b.isLocalPolicy("spec.internalTrafficPolicy", string(*p))
	}
	accessible := b.typ != corev1.ServiceTypeClusterIP || len(spec.ExternalIPs) > 0
	switch {
	case accessible:
		b.out.ExternalLocal = b.isLocalPolicy("spec.externalTrafficPolicy", string(spec.ExternalTrafficPolicy))
	case spec.ExternalTrafficPolicy != "":
		b.Addf("spec.externalTrafficPolicy", "an external traffic policy is allowed only for a Service that accepts "+
			"connections from outside the cluster")
	}
	b.readHealthCheck()
}

// isLocalPolicy reports whether a traffic policy is Local. Edgeway treats an unknown policy as Cluster.
func (b *serviceBuilder) isLocalPolicy(field, value string) (local bool) {
	switch value {
	case "", "Cluster":
		return false
	case "Local":
		return true
	}
	b.Addf(field, "%.64q is neither Cluster nor Local", value)
	return false
}

func (b *serviceBuilder) readHealthCheck() {
	const field = "spec.healthCheckNodePort"
	n := b.in.Spec.HealthCheckNodePort
	if b.typ != corev1.ServiceTypeLoadBalancer || !b.out.ExternalLocal {
		if n != 0 {
			b.Addf(field, "a health check port is allowed only for a Service of type LoadBalancer with "+
				"externalTrafficPolicy Local")
		}
		return
	}
	port, ok := parsePort(n)
	if !ok {
		b.Addf(field, "%d is not in the range 1 to 65535", n)
		return
	}
	b.out.HealthCheckNodePort = port
}
