package doctor

import (
	"context"
	"slices"
	"strings"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

const (
	fastPathCheck = "fast-path"
	legacyTables4 = "/proc/net/ip_tables_names"
	legacyTables6 = "/proc/net/ip6_tables_names"
)

// fastPath finds what silently keeps connections with the rules, or takes them past rules that must see them.
func fastPath(ctx context.Context, h *Host) (out []fault.Fault) {
	if !h.Config.FastPath.Enabled {
		return nil
	}
	if out = h.noFastPath(); out != nil {
		return out
	}
	opted := slices.DeleteFunc(slices.Clone(h.servicePorts()),
		func(svc *plan.ServicePort) bool { return !svc.LongLived })
	if len(opted) == 0 {
		return []fault.Fault{warning("kubectl annotate service NAME edgeway.io/traffic-hint=LongLived  # or fastpath.services",
			"the fast path is enabled, but no Service has opted in")}
	}
	for _, tables := range []string{legacyTables4, legacyTables6} {
		if names, err := h.Read(tables); err == nil && slices.ContainsFunc(strings.Fields(names), forwardsLegacy) {
			out = append(out, warning("edgeway reload  # after each change of these rules",
				"there are rules of iptables-legacy (%s): the kernel tells nobody of their changes, which connections on the fast path do not meet", tables))
		}
	}
	if h.EveryPacket != nil {
		for _, place := range h.EveryPacket(ctx) {
			out = append(out, warning("nft list ruleset  # if it is about such a Service, leave that out of the fast path",
				"connections on the fast path do not meet, or are kept off it by: %s", place))
		}
	}
	if len(out) == 0 {
		out = append(out, ok("nothing is known to keep connections of %d ServicePorts from the fast path", len(opted)))
	}
	return out
}

// noFastPath says what the daemon does of it, which knows the kernel and the backend that serves, or what a daemon
// would.
func (h *Host) noFastPath() []fault.Fault {
	for _, f := range h.Faults {
		if f.ID == fastPathCheck {
			return []fault.Fault{f}
		}
	}
	if why := h.Serving.Traits.NoFastPath; why != "" {
		return []fault.Fault{warning("fastpath.enabled = false", "there is no fast path with the backend %s: %s",
			h.Serving.Name, why)}
	}
	return nil
}

// forwardsLegacy says that a table of iptables has a chain for what is forwarded.
func forwardsLegacy(table string) bool {
	return slices.Contains([]string{"filter", "mangle", "security"}, table)
}
