package convert

import (
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/proxiers/plan"
)

// maxEndpoints is the maximum number of endpoints that the API server allows in one EndpointSlice.
const maxEndpoints = 1000

// EndpointSlice converts a Kubernetes EndpointSlice to a source.EndpointSlice. The second result is false for slices of
// headless Services and for slices that list host names.
func (c *Converter) EndpointSlice(s *discoveryv1.EndpointSlice) (*source.EndpointSlice, bool) {
	if _, headless := s.Labels[api.LabelHeadless]; headless || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, false
	}
	key := source.Key{Kind: source.KindEndpointSlice, Namespace: s.Namespace, Name: s.Name}
	return containPanic(c, key, func() *source.EndpointSlice { return c.endpointSlice(s) }), true
}

func (c *Converter) endpointSlice(s *discoveryv1.EndpointSlice) *source.EndpointSlice {
	out := &source.EndpointSlice{Namespace: c.share(s.Namespace), Name: s.Name, Service: s.Labels[api.LabelServiceName]}
	b := sliceBuilder{Converter: c, out: out, faults: faults{source.Faults{Object: out.Key()}}}
	if b.checkNames() && b.readFamily(s.AddressType) {
		b.readPorts(s.Ports)
		b.readEndpoints(s.Endpoints)
	}
	// An invalid trigger time causes no fault, because Edgeway uses the trigger time only for one latency sample.
	if t, err := time.Parse(time.RFC3339Nano, s.Annotations[api.AnnotationLastChange]); err == nil {
		out.TriggerTime = encodableTime(t)
	}
	out.Faults = b.List()
	return out
}

type sliceBuilder struct {
	*Converter
	faults
	out *source.EndpointSlice
}

func (b *sliceBuilder) checkNames() bool {
	const label = "metadata.labels[" + api.LabelServiceName + "]"
	switch {
	case !isLabel(b.out.Namespace):
		b.Addf("metadata.namespace", "%.64q is not a DNS label", b.out.Namespace)
	case !isSubdomain(b.out.Name):
		b.Addf("metadata.name", "%.64q is not a DNS subdomain", b.out.Name)
	case b.out.Service == "":
		b.Addf(label, "the label is missing: it must name the Service that the endpoints belong to")
	case !isLabel(b.out.Service):
		b.Addf(label, "%.64q is not a DNS label", b.out.Service)
		b.out.Service = ""
	default:
		return true
	}
	return false
}

func (b *sliceBuilder) readFamily(t discoveryv1.AddressType) bool {
	switch t {
	case discoveryv1.AddressTypeIPv4:
		b.out.Family = plan.IPv4
	case discoveryv1.AddressTypeIPv6:
		b.out.Family = plan.IPv6
	default:
		b.Addf("addressType", "%.64q is not IPv4, IPv6 or FQDN", t)
		return false
	}
	return true
}

func (b *sliceBuilder) readPorts(ports []discoveryv1.EndpointPort) {
	names := make(map[string]bool, len(ports))
	b.out.Ports = make([]source.SlicePort, 0, len(ports))
	for i := range ports {
		field := at("ports", i)
		p, ok := b.readPort(field, &ports[i])
		if !ok || b.isRepeatedName(names, field, p.Name) {
			continue
		}
		names[p.Name] = true
		b.out.Ports = append(b.out.Ports, p)
	}
}

func (b *sliceBuilder) readPort(field string, in *discoveryv1.EndpointPort) (p source.SlicePort, ok bool) {
	switch {
	case in.Name == nil:
		b.Addf(field+".name", "a name is required; specify \"\" for an unnamed port")
		return p, false
	case *in.Name != "" && !isLabel(*in.Name):
		b.Addf(field+".name", "%.64q is not a DNS label", *in.Name)
		return p, false
	case in.Port == nil:
		b.Addf(field+".port", "a port number is required: Edgeway cannot serve all ports")
		return p, false
	}
	p.Name, p.Protocol = b.share(*in.Name), plan.TCP
	if in.Protocol != nil {
		if p.Protocol, ok = parseProtocol(*in.Protocol); !ok {
			b.Addf(field+".protocol", "%.64q is not TCP, UDP or SCTP", *in.Protocol)
			return p, false
		}
	}
	if p.Port, ok = parsePort(*in.Port); !ok {
		b.Addf(field+".port", "%d is not in the range 1 to 65535", *in.Port)
		return p, false
	}
	return p, true
}

func (b *sliceBuilder) readEndpoints(endpoints []discoveryv1.Endpoint) {
	if len(endpoints) > maxEndpoints {
		b.Addf("endpoints", "%d endpoints exceed the limit of %d; Edgeway ignores the rest", len(endpoints),
			maxEndpoints)
		endpoints = endpoints[:maxEndpoints]
	}
	b.out.Endpoints = make([]source.Endpoint, 0, len(endpoints))
	for i := range endpoints {
		field := at("endpoints", i)
		if e, ok := b.readEndpoint(field, &endpoints[i]); ok {
			b.merge(field, e)
		}
	}
}

// merge adds the endpoint e. If another endpoint has the same address, merge keeps only one of the two. While an
// address moves from a terminating pod to a new pod, a slice may list both pods. The new pod's endpoint then replaces
// the terminating endpoint, without a fault.
func (b *sliceBuilder) merge(field string, e source.Endpoint) {
	i := slices.IndexFunc(b.out.Endpoints, func(o source.Endpoint) bool { return o.Addr == e.Addr })
	if i < 0 {
		b.out.Endpoints = append(b.out.Endpoints, e)
		return
	}
	old := &b.out.Endpoints[i]
	if old.Terminating == e.Terminating {
		b.Addf(field+".addresses[0]", "the address %s is a duplicate; Edgeway uses the last endpoint with the address",
			e.Addr)
	}
	if !e.Terminating || old.Terminating {
		*old = e
	}
}

func (b *sliceBuilder) readEndpoint(field string, in *discoveryv1.Endpoint) (source.Endpoint, bool) {
	a, ok := b.readAddress(field+".addresses", in.Addresses)
	if !ok {
		return source.Endpoint{}, false
	}
	e := source.Endpoint{
		Addr:        a,
		Ready:       in.Conditions.Ready == nil || *in.Conditions.Ready,
		Serving:     in.Conditions.Serving == nil || *in.Conditions.Serving,
		Terminating: in.Conditions.Terminating != nil && *in.Conditions.Terminating,
	}
	if in.NodeName != nil {
		if isSubdomain(*in.NodeName) {
			e.NodeName = b.share(*in.NodeName)
		} else {
			b.Addf(field+".nodeName", "%.64q is not a DNS subdomain", *in.NodeName)
		}
	}
	if in.Hints != nil {
		b.readHints(field+".hints", in.Hints, &e)
	}
	return e, true
}

// readAddress parses only the first of an endpoint's addresses, because the API assigns no meaning to the others.
func (b *sliceBuilder) readAddress(field string, addresses []string) (netip.Addr, bool) {
	if len(addresses) == 0 {
		b.Addf(field, "an address is required")
		return netip.Addr{}, false
	}
	a, err := parseUnicast(addresses[0])
	if err != nil {
		b.Addf(field+"[0]", "%s", err)
		return netip.Addr{}, false
	}
	if plan.FamilyOf(a) != b.out.Family {
		b.Addf(field+"[0]", "%s is not an %s address", a, b.out.Family)
		return netip.Addr{}, false
	}
	return a, true
}

func (b *sliceBuilder) readHints(field string, in *discoveryv1.EndpointHints, e *source.Endpoint) {
	var found source.Hints
	for i, n := range in.ForNodes {
		if !isSubdomain(n.Name) {
			b.Addf(at(field+".forNodes", i)+".name", "%.64q is not a DNS subdomain", n.Name)
			continue
		}
		found.ForNodes = append(found.ForNodes, n.Name)
	}
	for i, z := range in.ForZones {
		if !isLabelValue(z.Name) {
			b.Addf(at(field+".forZones", i)+".name", "%.64q is not a valid label value", z.Name)
			continue
		}
		found.ForZones = append(found.ForZones, z.Name)
	}
	if found.ForNodes == nil && found.ForZones == nil {
		return
	}
	e.Hints = &found
	var prev *source.Endpoint
	if n := len(b.out.Endpoints); n > 0 {
		prev = &b.out.Endpoints[n-1]
	}
	b.shareHints(e, prev)
}
