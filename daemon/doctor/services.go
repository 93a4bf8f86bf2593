package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// services names those that reject or drop all connections, with the reason, and EndpointSlices without a Service.
func services(_ context.Context, h *Host) []finding.Finding {
	if h.Plan == nil {
		return nil
	}
	var idle, local []finding.Finding
	for _, svc := range h.Plan.Services {
		switch outside := svc.Frontends[0].Routes[plan.FromOutside]; {
		case slices.ContainsFunc(svc.Frontends, forwards):
		case outside.Verdict == plan.Drop:
			local = append(local, warning(`node.local_policy = "cluster"`,
				"connections to %s (%s) are dropped: its traffic policy is Local, and no endpoint is on this host", svc.Name, svc.Family))
		default:
			idle = append(idle, h.idle(svc))
		}
	}
	out := append(shorten(idle, "Services without an endpoint"), shorten(local, "Services without an endpoint on this host")...)
	var orphans []finding.Finding
	for _, o := range h.Orphans {
		orphans = append(orphans, warning("the label kubernetes.io/service-name of it, or the clusterIP of the Service",
			"%s is used by nothing: no Service of that name has a ClusterIP", o))
	}
	out = append(out, shorten(orphans, "EndpointSlices without a Service")...)
	if len(out) == 0 {
		out = append(out, ok("each of %d ports of Services has an endpoint", len(h.Plan.Services)))
	}
	return out
}

// forwards reports whether any connection to the frontend goes to an endpoint.
func forwards(f plan.Frontend) bool {
	return slices.ContainsFunc(f.Routes[:], func(r plan.Route) bool { return r.Verdict == plan.Forward })
}

// idle says why a ServicePort has no endpoint.
func (h *Host) idle(svc *plan.ServicePort) finding.Finding {
	object := svc.Name.Namespace + "/" + svc.Name.Name
	why := "the Service is gone"
	name := tracker.Name{Namespace: svc.Name.Namespace, Name: svc.Name.Name}
	if i, found := slices.BinarySearchFunc(h.Services, name, func(s *tracker.Service, n tracker.Name) int { return s.Name().Compare(n) }); found {
		why = WhyNoEndpoint(h.Services[i], svc)
	}
	mend := fmt.Sprintf("kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s -o yaml", svc.Name.Namespace, svc.Name.Name)
	if h.Config.Source.Kube.Kubeconfig == "" {
		mend = "the EndpointSlices of " + object + " in " + strings.Join(h.Config.Source.File.Paths, ", ")
	}
	return warning(mend, "connections to %s (%s) are rejected: %s", svc.Name, svc.Family, why)
}

// WhyNoEndpoint says in words why a port of a Service has no endpoint that connections can go to.
func WhyNoEndpoint(of *tracker.Service, svc *plan.ServicePort) string {
	var ofFamily []*source.EndpointSlice
	for _, s := range of.Slices {
		if s.Family == svc.Family {
			ofFamily = append(ofFamily, s)
		}
	}
	switch {
	case len(of.Slices) == 0:
		return "no EndpointSlice has the label kubernetes.io/service-name: " + svc.Name.Name
	case len(ofFamily) == 0:
		return fmt.Sprintf("its EndpointSlices are all of %s", other(svc.Family))
	}
	m := match(ofFamily, svc.Name)
	switch {
	case !m.found && len(m.others) == 0:
		return "its EndpointSlices have no ports"
	case !m.found:
		return fmt.Sprintf("its EndpointSlices have no port %s, but %s", portName(svc.Name.Port, svc.Name.Protocol), several(m.others, maxNetworks))
	case m.endpoints == 0:
		return "its EndpointSlices are empty: no pod matches its selector"
	case m.ready == 0:
		return fmt.Sprintf("none of its %d endpoints is ready", m.endpoints)
	}
	return "all its endpoints are refused; edgeway status says why"
}

// matched is what EndpointSlices have for a port.
type matched struct {
	found            bool
	others           []string // the ports that they have besides
	endpoints, ready int
}

func match(list []*source.EndpointSlice, port plan.ServicePortName) (m matched) {
	for _, s := range list {
		for _, p := range s.Ports {
			if p.Name != port.Port || p.Protocol != port.Protocol {
				if text := portName(p.Name, p.Protocol); !slices.Contains(m.others, text) {
					m.others = append(m.others, text)
				}
				continue
			}
			m.found = true
			m.endpoints += len(s.Endpoints)
			for i := range s.Endpoints {
				if s.Endpoints[i].Ready || s.Endpoints[i].Serving {
					m.ready++
				}
			}
		}
	}
	return m
}

func portName(name string, protocol plan.Protocol) string {
	return fmt.Sprintf("%q/%s", name, protocol)
}
