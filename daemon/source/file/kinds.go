package file

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/fault"
)

// kind is a kind of object that Edgeway reads. add decodes and converts an object. Before the conversion, add applies
// the API server's defaults and validates the fields that only a manifest can omit.
type kind struct {
	apiVersion, kind string
	add              func(s *Source, d *document, at string, data []byte)
}

var kinds = [...]kind{
	{"v1", "Service", addService},
	{"discovery.k8s.io/v1", "EndpointSlice", addEndpointSlice},
	{"v1", "Node", addNode},
	{"networking.k8s.io/v1", "ServiceCIDR", addServiceCIDR},
}

// apiVersionFix is the fix for a missing apiVersion.
const apiVersionFix = "set apiVersion to v1 for a Service or Node, discovery.k8s.io/v1 for an EndpointSlice, " +
	"networking.k8s.io/v1 for a ServiceCIDR"

type usage int

const (
	notUsed      usage = iota
	useObject          // an object of a kind that Edgeway reads
	useList            // a list of a kind that Edgeway reads, or a list whose items specify their kinds
	otherVersion       // an object of a kind that Edgeway reads, but in an unsupported version
)

func find(meta metav1.TypeMeta) (usage, kind) {
	if meta.Kind == "List" && meta.APIVersion == "v1" {
		return useList, kind{}
	}
	item, isList := strings.CutSuffix(meta.Kind, "List")
	for _, k := range kinds {
		switch {
		case item != k.kind || groupOf(meta.APIVersion) != groupOf(k.apiVersion):
		case meta.APIVersion != k.apiVersion:
			return otherVersion, k
		case isList:
			return useList, k
		default:
			return useObject, k
		}
	}
	return notUsed, kind{}
}

// builtinKinds lists the Kubernetes 1.37 kinds in the API groups that Edgeway reads.
var builtinKinds = map[string][]string{
	"": {
		"Binding", "ConfigMap", "Endpoints", "Event", "LimitRange", "List", "Namespace", "Node", "PersistentVolume",
		"PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "Service",
		"ServiceAccount",
	},
	"discovery.k8s.io":  {"EndpointSlice"},
	"networking.k8s.io": {"IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"},
}

func isMisspelt(meta metav1.TypeMeta) bool {
	group := groupOf(meta.APIVersion)
	known, ours := builtinKinds[group]
	switch {
	case ours && group == "":
		return meta.APIVersion != "v1" || !slices.Contains(known, strings.TrimSuffix(meta.Kind, "List"))
	case ours:
		return !slices.Contains(known, strings.TrimSuffix(meta.Kind, "List"))
	}
	return false
}

func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// service is a Service with the field spec.trafficHint, which KEP-4963 proposes. The Kubernetes 1.37 API server drops
// the unknown field spec.trafficHint, so Services in a cluster use the annotation instead.
type service struct {
	corev1.Service `json:",inline"`

	Spec struct {
		corev1.ServiceSpec `json:",inline"`

		TrafficHint *string `json:"trafficHint,omitempty"`
	} `json:"spec"`
}

func addService(s *Source, d *document, at string, data []byte) {
	svc := new(service)
	if !unmarshal(d, at, data, svc) || !validateNamespaced(d, at, &svc.ObjectMeta, validation.IsDNS1123Label) {
		return
	}
	spec := &svc.Spec.ServiceSpec
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		spec.ClusterIP = spec.ClusterIPs[0]
	case spec.ClusterIP == "" && spec.Type != corev1.ServiceTypeExternalName:
		d.addf(join(at, "spec.clusterIP"), "", "an address or None is required: Edgeway does not allocate ClusterIPs")
		return
	}
	svc.Service.Spec = *spec
	out, ok := s.converter.Service(&svc.Service)
	if !ok {
		return
	}
	if hint := svc.Spec.TrafficHint; hint != nil {
		convert.ApplyTrafficHint(out, *hint)
	}
	out.Manifest = true
	out.Faults = slices.Concat(out.Faults, nodePortFaults(out.Key(), spec), distributionFaults(out.Key(), spec))
	d.objects = append(d.objects, out)
}

// distributionFaults returns a fault for a spec.trafficDistribution value that an API server would reject. Edgeway does
// not use spec.trafficDistribution itself, because EndpointSlices hold the resulting zone and Node hints.
func distributionFaults(key source.Key, spec *corev1.ServiceSpec) []fault.Fault {
	known := []string{
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode,
	}
	if d := spec.TrafficDistribution; d != nil && !slices.Contains(known, *d) {
		return []fault.Fault{
			source.FaultOf(key, "spec.trafficDistribution", "%.64q is none of %s", *d, strings.Join(known, ", ")),
		}
	}
	return nil
}

// nodePortFaults returns a fault for each port that requires a NodePort but specifies none. Edgeway still serves the
// port at the Service's other addresses.
func nodePortFaults(key source.Key, spec *corev1.ServiceSpec) []fault.Fault {
	switch spec.Type {
	case corev1.ServiceTypeNodePort:
	case corev1.ServiceTypeLoadBalancer:
		if spec.AllocateLoadBalancerNodePorts != nil && !*spec.AllocateLoadBalancerNodePorts {
			return nil
		}
	default:
		return nil
	}
	found := source.Faults{Object: key}
	for i := range spec.Ports {
		if spec.Ports[i].NodePort == 0 {
			found.Addf(fmt.Sprintf("spec.ports[%d].nodePort", i),
				"the type %s requires a NodePort: Edgeway does not allocate NodePorts", spec.Type)
		}
	}
	return found.List()
}

func addEndpointSlice(s *Source, d *document, at string, data []byte) {
	slice := new(discoveryv1.EndpointSlice)
	if !unmarshal(d, at, data, slice) || !validateNamespaced(d, at, &slice.ObjectMeta, validation.IsDNS1123Subdomain) {
		return
	}
	for i := range slice.Ports {
		if slice.Ports[i].Name == nil {
			slice.Ports[i].Name = new(string)
		}
	}
	if out, ok := s.converter.EndpointSlice(slice); ok {
		out.Manifest = true
		d.objects = append(d.objects, out)
		if convert.Validate(out) != nil && len(out.Faults) > 0 {
			if d.invalidObjects == nil {
				d.invalidObjects = make(map[source.Key]bool)
			}
			d.invalidObjects[out.Key()] = true
		}
	}
}

func addNode(s *Source, d *document, at string, data []byte) {
	node := new(corev1.Node)
	if !unmarshal(d, at, data, node) || !validateName(d, at, &node.ObjectMeta, validation.IsDNS1123Subdomain) {
		return
	}
	if node.Name == s.options.NodeName {
		d.objects = append(d.objects, s.converter.Node(node))
	}
}

func addServiceCIDR(s *Source, d *document, at string, data []byte) {
	cidr := new(networkingv1.ServiceCIDR)
	if unmarshal(d, at, data, cidr) && validateName(d, at, &cidr.ObjectMeta, validation.IsDNS1123Subdomain) {
		d.objects = append(d.objects, s.converter.ServiceCIDR(cidr))
	}
}

// validateNamespaced sets an object's default namespace and validates its namespace and name.
func validateNamespaced(d *document, at string, meta *metav1.ObjectMeta, rule func(string) []string) bool {
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault
	}
	if faults := validation.IsDNS1123Label(meta.Namespace); len(faults) > 0 {
		d.addf(join(at, "metadata.namespace"), "", "%.64q: %s", meta.Namespace, strings.Join(faults, "; "))
		return false
	}
	return validateName(d, at, meta, rule)
}

func validateName(d *document, at string, meta *metav1.ObjectMeta, rule func(string) []string) bool {
	if meta.Name == "" {
		d.addf(join(at, "metadata.name"), "", "missing")
		return false
	}
	if faults := rule(meta.Name); len(faults) > 0 {
		d.addf(join(at, "metadata.name"), "", "%.64q: %s", meta.Name, strings.Join(faults, "; "))
		return false
	}
	return true
}
