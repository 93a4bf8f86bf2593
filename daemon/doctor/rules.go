package doctor

import (
	"context"
	"slices"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/fault"
)

// checkForeignRules searches for other programs' rules that drop connections to the plan's Services.
func checkForeignRules(ctx context.Context, h *Host) []fault.Fault {
	if h.Rules == nil || h.Plan == nil || h.Plan.Node == nil {
		return nil
	}
	return h.Rules(ctx, firewall.Requirements{
		Plan: h.Plan, ForwardedFrontends: h.forwardedFrontends, Links: h.endpointLinks,
	})
}

// endpointLinks returns the interfaces that lead to endpoints on other hosts.
func (h *Host) endpointLinks() []string {
	links := []string{}
	for _, n := range h.networks() {
		if w, why := h.lookUpRoute(n.first.addr); why == "" && w.Interface != "" &&
			!slices.Contains(links, w.Interface) {
			links = append(links, w.Interface)
		}
	}
	slices.Sort(links)
	return links
}
