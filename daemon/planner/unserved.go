package planner

import (
	"fmt"
	"slices"
	"strings"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Unserved returns a problem for each port of a Service that has no endpoint in any family, so that its connections are
// rejected. It looks at all Services of the plan.
func Unserved(snap *tracker.Snapshot, p *plan.Plan) (out []fault.Fault) {
	served := make(map[plan.ServicePortName]bool, len(p.Services))
	for _, sp := range p.Services {
		has := len(sp.Pools[plan.ClusterPool])+len(sp.Pools[plan.LocalPool]) > 0
		served[sp.Name] = served[sp.Name] || has
	}
	for _, svc := range snap.Services {
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			name := plan.ServicePortName{
				Namespace: svc.Spec.Namespace, Name: svc.Spec.Name, Port: port.Name, Protocol: port.Protocol,
			}
			if has, planned := served[name]; has || !planned {
				continue
			}
			why, fix := whyUnserved(svc, port)
			problem := svc.Spec.Key().Fault(fmt.Sprintf("spec.ports[%d]", i), "%s", why)
			problem.Fix = fix
			out = append(out, problem)
		}
	}
	return out
}

// whyUnserved says why a port of a Service has no endpoint, and what may be wrong in the EndpointSlices.
func whyUnserved(svc *tracker.Service, port *source.ServicePort) (why, fix string) {
	isEmpty := func(s *source.EndpointSlice) bool { return len(s.Endpoints) == 0 }
	used := slices.DeleteFunc(slices.Clone(svc.Slices), isEmpty)
	if len(used) == 0 {
		return "no EndpointSlice has endpoints for it", fmt.Sprintf(
			"set the label %s: %s on an EndpointSlice in the namespace %s",
			api.LabelServiceName, svc.Spec.Name, svc.Spec.Namespace)
	}
	used = slices.DeleteFunc(used, func(s *source.EndpointSlice) bool { return !hasFamily(svc.Spec, s.Family) })
	if len(used) == 0 {
		return "it has no address of the family of its endpoints", "add one to spec.clusterIPs"
	}
	var names []string
	for _, s := range used {
		for _, p := range s.Ports {
			if p.Name == port.Name && p.Protocol == port.Protocol {
				return "none of its endpoints is ready", ""
			}
			name := fmt.Sprintf("%q (%s)", p.Name, p.Protocol)
			if !slices.Contains(names, name) && len(names) < maxNames {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "its EndpointSlices have no ports", "list the ports in the EndpointSlice"
	}
	return fmt.Sprintf("no EndpointSlice of it has the port %q (%s), only %s", port.Name, port.Protocol,
		strings.Join(names, ", ")), "give the port the same name and protocol in both objects"
}

// maxNames bounds the ports that a message names.
const maxNames = 5
