package convert

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/daemon/text"
	"edgeway/proxiers/plan"
)

// defaultAffinity and maxAffinity are the API server's default and maximum for
// SessionAffinityConfig.ClientIP.TimeoutSeconds.
const (
	defaultAffinity = 10800
	maxAffinity     = 86400
)

// Service converts a Kubernetes Service to a source.Service. The second result is false for headless and ExternalName
// Services, which have no ClusterIP, and for Services that select another proxy.
func (c *Converter) Service(s *corev1.Service) (*source.Service, bool) {
	if !isOurs(s) {
		return nil, false
	}
	key := source.Key{Kind: source.KindService, Namespace: s.Namespace, Name: s.Name}
	return containPanic(c, key, func() *source.Service { return c.service(s) }), true
}

// encodableTime returns t in UTC, or the zero time if the year is above 9999. The last-known state is JSON, and
// time.Time.MarshalJSON rejects a year above 9999.
func encodableTime(t time.Time) time.Time {
	if t = t.UTC(); t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

func (c *Converter) service(s *corev1.Service) *source.Service {
	out := &source.Service{
		Namespace: c.share(s.Namespace),
		Name:      s.Name,
		UID:       string(s.UID),
		Created:   encodableTime(s.CreationTimestamp.Time),
	}
	b := serviceBuilder{Converter: c, in: s, out: out, faults: faults{source.Faults{Object: out.Key()}}}
	if b.checkName() {
		b.readType()
		b.readClusterIPs()
		b.readExternalIPs()
		b.readLoadBalancer()
		b.readPorts()
		b.readAffinity()
		b.readPolicies()
		b.reportUnknownAnnotations()
		b.trafficHint()
		b.readScheduler()
		b.readWeights()
	}
	out.Faults = b.List()
	return out
}

func isOurs(s *corev1.Service) bool {
	if _, other := s.Labels[api.LabelServiceProxyName]; other {
		return false
	}
	ip := s.Spec.ClusterIP
	return ip != "" && ip != corev1.ClusterIPNone && s.Spec.Type != corev1.ServiceTypeExternalName
}

type serviceBuilder struct {
	*Converter
	faults
	in  *corev1.Service
	out *source.Service
	// typ is spec.type, or ClusterIP if the type is unknown.
	typ corev1.ServiceType
}

func (b *serviceBuilder) checkName() bool {
	if !isLabel(b.in.Namespace) {
		b.Addf("metadata.namespace", "%.64q is not a DNS label", b.in.Namespace)
		return false
	}
	if !isLabel(b.in.Name) {
		b.Addf("metadata.name", "%.64q is not a DNS label", b.in.Name)
		return false
	}
	return true
}

func (b *serviceBuilder) readType() {
	switch t := b.in.Spec.Type; t {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		b.typ = t
	case corev1.ServiceTypeClusterIP, "":
		b.typ = corev1.ServiceTypeClusterIP
	default:
		b.Addf("spec.type", "%.64q is unknown; Edgeway treats the Service as type ClusterIP", t)
		b.typ = corev1.ServiceTypeClusterIP
	}
}

// readClusterIPs reads at most one address for each family. If spec.ipFamilies is set, each address must belong to the
// family at the same index.
func (b *serviceBuilder) readClusterIPs() {
	spec := &b.in.Spec
	field, list := "spec.clusterIPs", spec.ClusterIPs
	if len(list) > 0 && list[0] != spec.ClusterIP {
		b.Addf(field, "the first address must equal spec.clusterIP")
		list = nil
	}
	if len(list) == 0 {
		field, list = "spec.clusterIP", []string{spec.ClusterIP}
	}
	for i, s := range list {
		name := field
		if field == "spec.clusterIPs" {
			name = at(field, i)
		}
		a, err := parseFrontend(s)
		if err != nil {
			b.Addf(name, "%s", err)
			continue
		}
		family := plan.FamilyOf(a)
		if n := len(spec.IPFamilies); n > 0 && (i >= n || string(spec.IPFamilies[i]) != family.String()) {
			b.Addf(name, "spec.ipFamilies does not contain the address family of %s at index %d", a, i)
			continue
		}
		if slices.ContainsFunc(b.out.ClusterIPs, func(o netip.Addr) bool { return plan.FamilyOf(o) == family }) {
			b.Addf(name, "%s is a second %s address", a, family)
			continue
		}
		b.out.ClusterIPs = append(b.out.ClusterIPs, a)
	}
}

func (b *serviceBuilder) readExternalIPs() {
	seen := set[netip.Addr]{}
	for i, s := range b.in.Spec.ExternalIPs {
		// Some API server versions did not validate spec.externalIPs, so this field often contains empty strings.
		if strings.TrimSpace(s) == "" {
			continue
		}
		a, err := parseFrontend(s)
		if err != nil {
			b.Addf(at("spec.externalIPs", i), "%s", err)
			continue
		}
		if seen.add(a) {
			b.out.ExternalIPs = append(b.out.ExternalIPs, a)
		}
	}
}

func (b *serviceBuilder) readLoadBalancer() {
	ingress := b.in.Status.LoadBalancer.Ingress
	if b.typ != corev1.ServiceTypeLoadBalancer {
		if len(ingress) > 0 {
			b.Addf("status.loadBalancer.ingress",
				"an ingress address is allowed only for a Service of type LoadBalancer")
		}
		if len(b.in.Spec.LoadBalancerSourceRanges) > 0 {
			b.Addf("spec.loadBalancerSourceRanges", "source ranges are allowed only for a Service of type LoadBalancer")
		}
		return
	}
	seen := set[netip.Addr]{}
	for i := range ingress {
		if a, ok := b.ingress(at("status.loadBalancer.ingress", i), &ingress[i]); ok && seen.add(a) {
			b.out.LoadBalancerIPs = append(b.out.LoadBalancerIPs, a)
		}
	}
	b.readSourceRanges()
}

// ingress returns the address of a load balancer that delivers packets with an unchanged destination address. In Proxy
// mode, the load balancer sends packets to the hosts' own addresses. An ingress with only a host name contains no
// address.
func (b *serviceBuilder) ingress(field string, in *corev1.LoadBalancerIngress) (a netip.Addr, ok bool) {
	if in.IP == "" {
		return a, false
	}
	switch mode := in.IPMode; {
	case mode == nil || *mode == corev1.LoadBalancerIPModeVIP:
	case *mode == corev1.LoadBalancerIPModeProxy:
		return a, false
	default:
		b.Addf(field+".ipMode", "%.64q is neither VIP nor Proxy", *mode)
		return a, false
	}
	a, err := parseFrontend(in.IP)
	if err != nil {
		b.Addf(field+".ip", "%s", err)
	}
	return a, err == nil
}

// If all source ranges of an address family are invalid, no client of that family can connect.
func (b *serviceBuilder) readSourceRanges() {
	var broken []plan.Family
	seen := set[netip.Prefix]{}
	for i, s := range b.in.Spec.LoadBalancerSourceRanges {
		s = strings.TrimSpace(s)
		p, err := parsePrefix(s)
		if err != nil {
			b.Addf(at("spec.loadBalancerSourceRanges", i), "%s", err)
			broken = append(broken, familiesOf(s)...)
			continue
		}
		if seen.add(p) {
			b.out.SourceRanges = append(b.out.SourceRanges, p)
		}
	}
	for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
		valid := slices.ContainsFunc(b.out.SourceRanges,
			func(p netip.Prefix) bool { return plan.FamilyOf(p.Addr()) == family })
		if slices.Contains(broken, family) && !valid {
			b.out.BlockedFamilies = append(b.out.BlockedFamilies, family)
		}
	}
}

func (b *serviceBuilder) readAffinity() {
	switch b.in.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone, "":
		return
	case corev1.ServiceAffinityClientIP:
	default:
		b.Addf("spec.sessionAffinity", "%.64q is neither None nor ClientIP", b.in.Spec.SessionAffinity)
		return
	}
	seconds := int32(defaultAffinity)
	if cfg := b.in.Spec.SessionAffinityConfig; cfg != nil && cfg.ClientIP != nil && cfg.ClientIP.TimeoutSeconds != nil {
		seconds = *cfg.ClientIP.TimeoutSeconds
	}
	if seconds < 1 || seconds > maxAffinity {
		b.Addf("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not in the range 1 to %d; Edgeway uses %d",
			seconds, maxAffinity, defaultAffinity)
		seconds = defaultAffinity
	}
	b.out.Affinity = time.Duration(seconds) * time.Second
}

// readScheduler reads the annotation that names the IPVS scheduler. The backend verifies that the scheduler exists.
func (b *serviceBuilder) readScheduler() {
	name := b.in.Annotations[api.AnnotationScheduler]
	if len(name) > maxSchedulerName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" {
		b.Addf("metadata.annotations["+api.AnnotationScheduler+"]",
			"%.64q is not the name of a scheduler, such as \"rr\"", name)
		return
	}
	b.out.Scheduler = strings.Clone(name)
}

// maxWeights is the maximum number of weights that readWeights accepts. The planner may match each endpoint against
// every weight.
const maxWeights = 256

// readWeights reads the annotation that sets IPVS weights, such as "edge-1=3, 10.0.0.7=2, 10.1.0.0/16=5". Each entry in
// the annotation selects endpoints by Node, address or range. A weight cannot be zero: to stop new connections to an
// endpoint, make the endpoint unready.
func (b *serviceBuilder) readWeights() {
	text := b.in.Annotations[api.AnnotationWeights]
	if text == "" {
		return
	}
	const field = "metadata.annotations[" + api.AnnotationWeights + "]"
	for part := range strings.SplitSeq(text, ",") {
		if len(b.out.Weights) == maxWeights {
			b.Addf(field, "there are more than %[1]d entries: Edgeway uses only the first %[1]d", maxWeights)
			return
		}
		w, err := parseWeight(part)
		if err != nil {
			b.Addf(field, "%s", err)
			continue
		}
		b.out.Weights = append(b.out.Weights, w)
	}
}

func parseWeight(part string) (w source.Weight, err error) {
	of, number, _ := strings.Cut(strings.TrimSpace(part), "=")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return w, fmt.Errorf("%.64q is not NODE=WEIGHT, ADDRESS=WEIGHT or RANGE=WEIGHT with a WEIGHT from 1 to 65535",
			part)
	}
	w.Weight = uint16(n)
	if a, err := netip.ParseAddr(of); err == nil && a.Zone() == "" {
		a = a.Unmap()
		w.Range = netip.PrefixFrom(a, a.BitLen())
		return w, nil
	}
	if strings.Contains(of, "/") {
		w.Range, err = parsePrefix(of)
		return w, err
	}
	if !isSubdomain(of) {
		return w, fmt.Errorf("%.64q is neither the name of a Node nor an address", of)
	}
	w.Node = strings.Clone(of)
	return w, nil
}

// maxSchedulerName is the maximum length of a scheduler's name: IP_VS_SCHEDNAME_MAXLEN in linux/ip_vs.h minus the
// terminating NUL.
const maxSchedulerName = 15

// reportUnknownAnnotations adds a fault for each unknown annotation with Edgeway's prefix, because the key is probably
// misspelt.
func (b *serviceBuilder) reportUnknownAnnotations() {
	known := api.Annotations()
	for _, key := range slices.Sorted(maps.Keys(b.in.Annotations)) {
		if !strings.HasPrefix(key, api.AnnotationPrefix) || slices.Contains(known, key) || !b.HasRoom() {
			continue
		}
		f := source.FaultOf(b.Object, fmt.Sprintf("metadata.annotations[%.64s]", key), "unknown annotation")
		if near, ok := text.Suggest(key, known); ok {
			f.Fix = "write " + near
		}
		b.Add(f)
	}
}

func (b *serviceBuilder) trafficHint() {
	if hint, ok := b.in.Annotations[api.AnnotationTrafficHint]; ok {
		b.faults.trafficHint(b.out, "metadata.annotations["+api.AnnotationTrafficHint+"]", hint)
	}
}

// ApplyTrafficHint applies a manifest's field spec.trafficHint, which has the same meaning as the traffic-hint
// annotation.
func ApplyTrafficHint(out *source.Service, hint string) {
	f := faults{source.Faults{Object: out.Key()}}
	f.trafficHint(out, "spec.trafficHint", hint)
	out.Faults = append(out.Faults, f.List()...)
}

func (f *faults) trafficHint(out *source.Service, field, hint string) {
	if hint != "LongLived" {
		f.Addf(field, "%.64q is not LongLived", hint)
		return
	}
	out.LongLived = true
}
