package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/planner"
	"edgeway/daemon/text"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// services names those that reject or drop connections, with the reason, and EndpointSlices without a Service.
func services(_ context.Context, h *Host) []fault.Fault {
	if h.Plan == nil {
		return nil
	}
	var idle, local []fault.Fault
	for _, svc := range h.Plan.Services {
		from := dropped(svc)
		switch {
		case from != "":
			local = append(local, warning(h.fixLocal(),
				"connections to %s (%s) from %s are dropped: a traffic policy of it is Local, and no endpoint is on this host",
				svc.Name, svc.Family, from))
		case !slices.ContainsFunc(svc.Frontends, forwards):
			idle = append(idle, h.idle(svc))
		}
	}
	out := append(shorten(idle, len(idle), "Services without an endpoint"),
		shorten(local, len(local), "Services without an endpoint on this host")...)
	var orphans []fault.Fault
	for _, o := range h.Orphans {
		orphans = append(orphans, warning("correct the label kubernetes.io/service-name of the EndpointSlice, or give that Service a clusterIP",
			"%s is used by nothing: no Service of that name has a ClusterIP", o))
	}
	out = append(out, shorten(orphans, len(orphans), "EndpointSlices without a Service")...)
	if len(out) == 0 {
		out = append(out, ok("%s of Services, each with an endpoint%s", text.Count(len(h.Plan.Services), "port"),
			h.unchecked()))
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

// dropped names the clients whose connections to a ServicePort, or to some of its addresses, are dropped because no
// endpoint is on this host.
func dropped(svc *plan.ServicePort) string {
	var from []string
	for origin, name := range map[plan.Origin]string{plan.FromHost: "this host", plan.FromOutside: "other hosts"} {
		drops := func(f plan.Frontend) bool { return f.Routes[origin].Verdict == plan.Drop }
		if slices.ContainsFunc(svc.Frontends, drops) {
			from = append(from, name)
		}
	}
	slices.Sort(from)
	return strings.Join(from, " and ")
}

// fixLocal is what to do where a traffic policy Local drops.
func (h *Host) fixLocal() string {
	if h.NodeObject {
		return "have an endpoint on this host, or give the Service the traffic policy Cluster"
	}
	return `node.local_policy = "cluster"`
}

// idle says why a ServicePort has no endpoint.
func (h *Host) idle(svc *plan.ServicePort) fault.Fault {
	name := tracker.Name{Namespace: svc.Name.Namespace, Name: svc.Name.Name}
	why := fault.Fault{
		Message: "it has no endpoint that they may go to",
		Fix:     "edgeway services " + name.Namespace + "/" + name.Name,
	}
	if i, found := slices.BinarySearchFunc(h.Services, name,
		func(s *tracker.Service, n tracker.Name) int { return s.Name().Compare(n) }); found {
		if absence, absent := planner.Absent(h.Services[i], svc.Name, svc.Family); absent {
			why = absence
		}
	}
	return fault.New(planner.NoEndpointID, fault.Notice, why.Fix, "connections to %s (%s) are rejected: %s", svc.Name,
		svc.Family, why.Message)
}
