package doctor

import (
	"context"
	"slices"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/planner"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// checkServices reports the ServicePorts whose connections Edgeway drops because no endpoint is on this host.
func checkServices(_ context.Context, h *Host) (out []fault.Fault) {
	if h.Plan == nil {
		return nil
	}
	fix := `node.local_policy = "cluster"`
	if h.NodeObject {
		fix = "start an endpoint on this host, or set the Service's traffic policy to Cluster"
	}
	for _, svc := range h.Plan.Services {
		if from := droppedClients(svc); from != "" {
			out = append(out, warning(fix,
				"Edgeway drops connections to %s (%s) from %s: the traffic policy is Local, and no "+
					"endpoint is on this host",
				svc.Name, svc.Family, from))
		}
	}
	idle := slices.ContainsFunc(h.Faults, func(f fault.Fault) bool { return f.ID == planner.NoEndpointID })
	if len(out) == 0 && !idle {
		out = append(out, ok("the Services have %s, each with an endpoint%s", text.Count(len(h.Plan.Services), "port"),
			h.checksHint()))
	}
	return out
}

// checksHint returns a hint that explains how to test whether the endpoints respond, because the services check itself
// opens no connections.
func (h *Host) checksHint() string {
	setting := h.ChecksSetting()
	if setting == "" {
		return ""
	}
	return "; edgeway doctor --connect tests whether the endpoints answer; with " + setting +
		", the daemon always tests endpoints"
}

// ChecksSetting returns the setting that enables endpoint checks for all sources, or "" if it is already in effect.
func (h *Host) ChecksSetting() string {
	var used []string
	if len(h.Config.Source.File.Paths) > 0 {
		used = append(used, string(config.CheckedFile))
	}
	if h.Config.Source.Kube.Kubeconfig != "" {
		used = append(used, string(config.CheckedKube))
	}
	missing := func(s string) bool { return !slices.Contains(h.Config.Checks.TCP.Sources, config.CheckedSource(s)) }
	if !slices.ContainsFunc(used, missing) {
		return ""
	}
	return `checks.tcp.sources = ["` + strings.Join(used, `", "`) + `"]`
}

// droppedClients describes the clients that cannot connect to some or all of a ServicePort's addresses, because no
// endpoint is on this host.
func droppedClients(svc *plan.ServicePort) string {
	drops := func(origin plan.Origin) bool {
		return slices.ContainsFunc(svc.Frontends,
			func(f plan.Frontend) bool { return f.Routes[origin].Verdict == plan.Drop })
	}
	switch host, others := drops(plan.FromHost), drops(plan.FromOutside); {
	case host && others:
		return "other hosts and this host"
	case host:
		return "this host"
	case others:
		return "other hosts"
	}
	return ""
}
