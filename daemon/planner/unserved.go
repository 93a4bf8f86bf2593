package planner

import (
	"fmt"
	"slices"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// NoEndpointID is the ID of the fault of a ServicePort without an endpoint.
const NoEndpointID = "no-endpoint"

// Unserved returns a Notice for each port of a Service that has no endpoint in any family. Connections to such a port
// are rejected.
func Unserved(svc *tracker.Service, p *plan.Plan) (out []fault.Fault) {
	for _, sp := range plan.WithoutEndpoint(p.Of(svc.Spec.Namespace, svc.Spec.Name)) {
		f, absent := Absent(svc, sp.Name, sp.Family)
		if !absent {
			f = absence("Edgeway refuses its endpoints",
				fmt.Sprintf("edgeway services %s/%s", sp.Name.Namespace, sp.Name.Name))
		}
		i := slices.IndexFunc(svc.Spec.Ports, func(port source.ServicePort) bool {
			return port.Name == sp.Name.Port && port.Protocol == sp.Name.Protocol
		})
		if i < 0 { // the snapshot is newer than the plan
			continue
		}
		f.Object, f.Field = svc.Spec.Key().Object(), fmt.Sprintf("spec.ports[%d]", i)
		out = append(out, f.For(fault.Scope{ServicePort: sp.Name.String()}))
	}
	return out
}
