package planner

import (
	"fmt"
	"slices"
	"strings"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// NoEndpointID is the ID of the fault for a ServicePort without an endpoint.
const NoEndpointID = "no-endpoint"

// UnservedPortFaults returns a Notice for each Service port that has no endpoint in any address family. Edgeway rejects
// connections to a port without endpoints.
func UnservedPortFaults(svc *tracker.Service, p *plan.Plan) (out []fault.Fault) {
	all := p.FindService(svc.Spec.Namespace, svc.Spec.Name)
	for _, sp := range plan.ServicePortsWithoutEndpoint(all) {
		f := explainUnserved(svc, all, sp.Name)
		i := slices.IndexFunc(svc.Spec.Ports, func(port source.ServicePort) bool {
			return port.Name == sp.Name.Port && port.Protocol == sp.Name.Protocol
		})
		if i < 0 { // this can happen because the snapshot is newer than the plan
			continue
		}
		f.Object, f.Field = svc.Spec.Key(), fmt.Sprintf("spec.ports[%d]", i)
		out = append(out, f.WithScope(fault.Scope{ServicePort: sp.Name.String()}))
	}
	return out
}

// explainUnserved returns a fault that explains why a port has no endpoint. If the reasons differ between address
// families, the message lists the reason for each family.
func explainUnserved(svc *tracker.Service, all []*plan.ServicePort, port plan.ServicePortName) (first fault.Fault) {
	var texts []string
	same := true
	for _, sp := range all {
		if sp.Name != port {
			continue
		}
		f, absent := NoEndpointFault(svc, port, sp.Family)
		if !absent {
			f = missingEndpointFault("Edgeway refuses its endpoints",
				fmt.Sprintf("edgeway services %s/%s", port.Namespace, port.Name))
		}
		if len(texts) == 0 {
			first = f
		}
		texts = append(texts, fmt.Sprintf("%s: %s", sp.Family, f.Message))
		same = same && f.Message == first.Message
	}
	if !same {
		first.Message = strings.Join(texts, "; ")
	}
	return first
}
