package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// Absence is why a port of a Service has no endpoint.
type Absence struct {
	// Seen is a sentence that follows the name of the ServicePort and a colon.
	Seen string
	// Mend is what to do.
	Mend string
}

// Absent says why a port of a Service has no endpoint in a family; false: it has one, ready or still serving. It knows
// what the sources say: an endpoint that the planner refuses is named by a problem of the Service.
func Absent(svc *tracker.Service, port plan.ServicePortName, family plan.Family) (Absence, bool) {
	label := fmt.Sprintf("the label kubernetes.io/service-name: %s", svc.Spec.Name)
	var ofFamily, named []*source.EndpointSlice
	for _, s := range svc.Slices {
		if s.Family != family {
			continue
		}
		ofFamily = append(ofFamily, s)
		if hasPort(s, port) {
			named = append(named, s)
		}
	}
	switch {
	case len(svc.Slices) == 0:
		return Absence{
			"there is no EndpointSlice for it",
			"have the Service's selector match pods, or write an EndpointSlice with " + label,
		}, true
	case len(ofFamily) == 0:
		return Absence{
			fmt.Sprintf("there is no EndpointSlice of addressType %s for it, only of %s", family, svc.Slices[0].Family),
			fmt.Sprintf("give the pods %s addresses, or write an EndpointSlice of this addressType with %s", family, label),
		}, true
	case len(named) == 0:
		return Absence{
			fmt.Sprintf("its EndpointSlices have no port %s, but %s", quotedPort(port.Port, port.Protocol), portsOf(ofFamily)),
			"give the port of the Service and that of the EndpointSlice the same name and protocol",
		}, true
	}
	return unready(svc.Spec, named)
}

// unready is Absent for slices that have the port.
func unready(svc *source.Service, named []*source.EndpointSlice) (Absence, bool) {
	var addrs []netip.Addr
	for _, s := range named {
		for _, e := range s.Endpoints {
			if e.Ready || e.Serving && e.Terminating {
				return Absence{}, false
			}
			addrs = append(addrs, e.Addr)
		}
	}
	addrs = sortAddrs(addrs)
	if len(addrs) == 0 {
		return Absence{
			fmt.Sprintf("its EndpointSlice %s has no endpoints", named[0].Name),
			"have the Service's selector match pods that run, or write endpoints into the EndpointSlice",
		}, true
	}
	return Absence{
		fmt.Sprintf("none of its endpoints is ready: %s", firstOf(addrs)),
		fmt.Sprintf("see why its pods are not ready (kubectl -n %s describe pods), or set conditions.ready of the endpoints", svc.Namespace),
	}, true
}

func hasPort(s *source.EndpointSlice, port plan.ServicePortName) bool {
	return slices.ContainsFunc(s.Ports, func(p source.SlicePort) bool { return p.Name == port.Port && p.Protocol == port.Protocol })
}

// portsOf names what the slices have, each once.
func portsOf(list []*source.EndpointSlice) string {
	var out []string
	for _, s := range list {
		for _, p := range s.Ports {
			out = append(out, quotedPort(p.Name, p.Protocol))
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == 0 {
		return "no port at all"
	}
	return firstOf(out)
}

func quotedPort(name string, protocol plan.Protocol) string {
	if name == "" {
		return fmt.Sprintf("%s without a name", protocol)
	}
	return fmt.Sprintf("%q/%s", name, protocol)
}

// firstOf lists the first few.
func firstOf[T any](list []T) string {
	const few = 3
	var out []string
	for _, v := range list[:min(few, len(list))] {
		out = append(out, fmt.Sprint(v))
	}
	text := strings.Join(out, ", ")
	if more := len(list) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
