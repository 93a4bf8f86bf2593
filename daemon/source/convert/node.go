package convert

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/proxiers/plan"
)

// leavingTaint is the taint that the cluster autoscaler sets on a Node before removing it.
const leavingTaint = "ToBeDeletedByClusterAutoscaler"

// Node converts a Kubernetes Node to a source.Node.
func (c *Converter) Node(n *corev1.Node) *source.Node {
	key := source.Key{Kind: source.KindNode, Name: n.Name}
	return containPanic(c, key, func() *source.Node { return c.node(n) })
}

func (c *Converter) node(n *corev1.Node) *source.Node {
	out := &source.Node{
		Name: n.Name,
		Leaving: n.DeletionTimestamp != nil ||
			slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == leavingTaint }),
	}
	f := faults{source.Faults{Object: out.Key()}}
	seen := set[netip.Addr]{}
	for _, wanted := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i := range n.Status.Addresses {
			if n.Status.Addresses[i].Type == wanted {
				a, err := parseUnicast(n.Status.Addresses[i].Address)
				switch {
				case err != nil:
					f.Addf(at("status.addresses", i)+".address", "%s", err)
				case seen.add(a):
					out.Addresses = append(out.Addresses, a)
				}
			}
		}
	}
	if zone, ok := n.Labels[api.LabelZone]; ok && zone != "" {
		if isLabelValue(zone) {
			out.Zone = c.share(zone)
		} else {
			f.Addf("metadata.labels["+api.LabelZone+"]", "%.64q is not a valid label value", zone)
		}
	}
	podCIDRs(&f, out, &n.Spec)
	out.Faults = f.List()
	return out
}

func podCIDRs(f *faults, out *source.Node, spec *corev1.NodeSpec) {
	ranges := spec.PodCIDRs
	if len(ranges) == 0 && spec.PodCIDR != "" {
		ranges = []string{spec.PodCIDR}
	}
	for i, s := range ranges {
		p, err := parsePrefix(s)
		if err != nil {
			f.Addf(at("spec.podCIDRs", i), "%s", err)
			continue
		}
		out.PodCIDRs = append(out.PodCIDRs, p)
	}
}

// ServiceCIDR converts a Kubernetes ServiceCIDR to a source.ServiceCIDR.
func (c *Converter) ServiceCIDR(s *networkingv1.ServiceCIDR) *source.ServiceCIDR {
	key := source.Key{Kind: source.KindServiceCIDR, Name: s.Name}
	return containPanic(c, key, func() *source.ServiceCIDR { return c.serviceCIDR(s) })
}

func (c *Converter) serviceCIDR(s *networkingv1.ServiceCIDR) *source.ServiceCIDR {
	out := &source.ServiceCIDR{Name: s.Name}
	f := faults{source.Faults{Object: out.Key()}}
	for i, r := range s.Spec.CIDRs {
		field := at("spec.cidrs", i)
		p, err := parsePrefix(r)
		other := slices.IndexFunc(notUnicast, p.Overlaps)
		switch {
		case err != nil:
			f.Addf(field, "%s", err)
		case other >= 0:
			// Edgeway drops packets to unallocated addresses in the range, so a range such as 0.0.0.0/1 would block
			// most of the host's traffic.
			f.Addf(field, "%s overlaps %s, a range that Services cannot use", p, notUnicast[other])
		case len(out.CIDRs) > 0 && plan.FamilyOf(out.CIDRs[0].Addr()) == plan.FamilyOf(p.Addr()) || len(out.CIDRs) == 2:
			f.Addf(field, "%s is a second %s range", p, plan.FamilyOf(p.Addr()))
		default:
			out.CIDRs = append(out.CIDRs, p)
		}
	}
	out.Faults = f.List()
	return out
}
