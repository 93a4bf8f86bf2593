package file

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"edgeway/daemon/source/api"
	"edgeway/proxiers/plan"
)

// endpoints are what an object of the kind Endpoints has. The ports have the fields of those of an EndpointSlice.
type endpoints struct {
	Subsets []struct {
		Addresses, NotReadyAddresses []oldAddress
		Ports                        []map[string]any
	}
}

type oldAddress struct{ IP, NodeName string }

// successor is an EndpointSlice with the fields that a person would write.
type successor struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        map[string]any   `json:"metadata"`
	AddressType     string           `json:"addressType"`
	Ports           []map[string]any `json:"ports"`
	Endpoints       []map[string]any `json:"endpoints"`
}

// checkEndpoints offers EndpointSlices for an object of the kind that came before them. With slices beside it, as in
// what "kubectl get" prints, it is not missed.
func (c *Checked) checkEndpoints(o *outline, found parts) {
	if len(found.slices["Service"+strings.TrimPrefix(o.name(), o.Kind)]) > 0 {
		return
	}
	f := o.fault("", "objects of the kind Endpoints are not used")
	var old endpoints
	if err := json.Unmarshal(o.data, &old); err != nil {
		c.add(f, "write an EndpointSlice with the label %s: %s", api.LabelServiceName, o.Metadata.Name)
		return
	}
	var out []string
	for _, s := range old.successors(o) {
		if text, err := yaml.Marshal(s); err == nil {
			out = append(out, string(text))
		}
	}
	if len(out) == 0 {
		c.add(f, "remove it: it has no addresses")
		return
	}
	c.add(f, "write this instead:\n%s", strings.Join(out, "---\n"))
}

// successors gives a slice for each subset and family.
func (old *endpoints) successors(o *outline) (out []successor) {
	for _, subset := range old.Subsets {
		for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
			list := append(ofFamily(subset.Addresses, family, true),
				ofFamily(subset.NotReadyAddresses, family, false)...)
			if len(list) == 0 {
				continue
			}
			s := successor{
				TypeMeta:    metav1.TypeMeta{APIVersion: api.Discovery().String(), Kind: "EndpointSlice"},
				AddressType: family.String(), Ports: subset.Ports, Endpoints: list,
				Metadata: map[string]any{
					"name":   fmt.Sprintf("%s-%d", o.Metadata.Name, len(out)+1),
					"labels": map[string]string{api.LabelServiceName: o.Metadata.Name},
				},
			}
			if o.Metadata.Namespace != "" {
				s.Metadata["namespace"] = o.Metadata.Namespace
			}
			out = append(out, s)
		}
	}
	return out
}

func ofFamily(addresses []oldAddress, family plan.Family, ready bool) (out []map[string]any) {
	for _, a := range addresses {
		addr, err := netip.ParseAddr(a.IP)
		if err != nil || plan.FamilyOf(addr) != family {
			continue
		}
		e := map[string]any{"addresses": []string{a.IP}}
		if !ready {
			e["conditions"] = map[string]bool{"ready": false}
		}
		if a.NodeName != "" {
			e["nodeName"] = a.NodeName
		}
		out = append(out, e)
	}
	return out
}
