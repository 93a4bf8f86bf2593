package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/planner"
	"edgeway/daemon/plural"
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
	out := append(shorten(idle, len(idle), "Services without an endpoint"), shorten(local, len(local), "Services without an endpoint on this host")...)
	var orphans []finding.Finding
	for _, o := range h.Orphans {
		orphans = append(orphans, warning("correct the label kubernetes.io/service-name of the EndpointSlice, or give that Service a clusterIP",
			"%s is used by nothing: no Service of that name has a ClusterIP", o))
	}
	out = append(out, shorten(orphans, len(orphans), "EndpointSlices without a Service")...)
	if len(out) == 0 {
		out = append(out, ok("%s of Services, each with an endpoint%s", plural.Of(len(h.Plan.Services), "port"), h.unchecked()))
	}
	return out
}

// unchecked says how to know whether the endpoints answer. This check connects to nothing.
func (h *Host) unchecked() string {
	setting := h.Unchecked()
	if setting == "" {
		return ""
	}
	return "; edgeway doctor --connect tries whether they answer, and with " + setting + " the daemon always does"
}

// Unchecked is the setting with which a daemon checks the endpoints that it does not check; empty: there are none.
func (h *Host) Unchecked() string {
	var all []string
	missing := false
	add := func(source config.CheckedSource) {
		all = append(all, fmt.Sprintf("%q", source))
		missing = missing || !slices.Contains(h.Config.Checks.TCP.Sources, source)
	}
	if len(h.Config.Source.File.Paths) > 0 {
		add(config.CheckedFile)
	}
	if h.Config.Source.Kube.Kubeconfig != "" {
		add(config.CheckedKube)
	}
	if !missing {
		return ""
	}
	return "checks.tcp.sources = [" + strings.Join(all, ", ") + "]"
}

// forwards reports whether any connection to the frontend goes to an endpoint.
func forwards(f plan.Frontend) bool {
	return slices.ContainsFunc(f.Routes[:], func(r plan.Route) bool { return r.Verdict == plan.Forward })
}

// idle says why a ServicePort has no endpoint.
func (h *Host) idle(svc *plan.ServicePort) finding.Finding {
	name := tracker.Name{Namespace: svc.Name.Namespace, Name: svc.Name.Name}
	why := planner.Absence{Seen: "it has no endpoint that they may go to", Mend: "edgeway plan " + name.Namespace + "/" + name.Name}
	if i, found := slices.BinarySearchFunc(h.Services, name, func(s *tracker.Service, n tracker.Name) int { return s.Name().Compare(n) }); found {
		if absence, absent := planner.Absent(h.Services[i], svc.Name, svc.Family); absent {
			why = absence
		}
	}
	return warning(why.Mend, "connections to %s (%s) are rejected: %s", svc.Name, svc.Family, why.Seen)
}
