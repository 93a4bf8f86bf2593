package doctor

import (
	"context"
	"slices"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/fault"
)

// foreignRules searches for other programs' rules that drop connections to the plan's Services.
func foreignRules(ctx context.Context, h *Host) []fault.Fault {
	if h.Rules == nil || h.Plan == nil || h.Plan.Node == nil {
		return nil
	}
	return h.Rules(ctx, firewall.Question{Plan: h.Plan, Forwarded: h.forwarded, Links: h.endpointLinks})
}

// endpointLinks returns the interfaces that lead to endpoints on other hosts.
func (h *Host) endpointLinks() []string {
	links := []string{}
	for _, n := range h.networks() {
		if w, why := h.route(n.first.addr); why == "" && w.Interface != "" && !slices.Contains(links, w.Interface) {
			links = append(links, w.Interface)
		}
	}
	slices.Sort(links)
	return links
}
