package doctor

import (
	"context"
	"slices"
	"strings"

	"edgeway/daemon/doctor/finding"
	"edgeway/proxiers/plan"
)

const (
	fastPathCheck = "fast-path"
	countsPackets = "/proc/sys/net/netfilter/nf_conntrack_acct"
	legacyTables4 = "/proc/net/ip_tables_names"
	legacyTables6 = "/proc/net/ip6_tables_names"
)

// fastPath finds what silently keeps connections with the rules, or takes them past rules that must see them.
func fastPath(ctx context.Context, h *Host) (out []finding.Finding) {
	f := h.Config.FastPath
	if !f.Enabled {
		return nil
	}
	if out = h.noFastPath(); out != nil {
		return out
	}
	opted := slices.DeleteFunc(slices.Clone(h.servicePorts()), func(svc *plan.ServicePort) bool { return !svc.LongLived })
	if len(opted) == 0 {
		return []finding.Finding{warning("kubectl annotate service NAME edgeway.io/traffic-hint=LongLived  # or fastpath.services",
			"the fast path is enabled, but no Service has opted in")}
	}
	if counts, err := h.Read(countsPackets); f.AfterPackets > 0 && err == nil && counts == "0" {
		out = append(out, warning("sysctl -w net.netfilter.nf_conntrack_acct=1",
			"fastpath.after_packets is set, but the kernel counts no packets: no connection gets there"))
	}
	out = append(out, h.fastDevices(opted)...)
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

// noFastPath says what the daemon does of it, which knows the kernel and the backend that serves, or what a daemon would.
func (h *Host) noFastPath() []finding.Finding {
	for _, c := range h.Conditions {
		if c.Name == fastPathCheck {
			return []finding.Finding{warning(c.Mend, "%s", c.Message)}
		}
	}
	if why := h.Serving.Traits.NoFastPath; why != "" {
		return []finding.Finding{warning("fastpath.enabled = false", "there is no fast path with the backend %s: %s", h.Serving.Name, why)}
	}
	return nil
}

// forwardsLegacy says that a table of iptables has a chain for what is forwarded.
func forwardsLegacy(table string) bool {
	return slices.Contains([]string{"filter", "mangle", "security"}, table)
}

// fastDevices finds endpoints behind devices that do not take part. It looks up some ways.
func (h *Host) fastDevices(opted []*plan.ServicePort) (out []finding.Finding) {
	f, told, looked := h.Config.FastPath, map[string]bool{}, 0
	matches := func(patterns []string, device string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return plan.MatchInterface(p, device) })
	}
	for _, svc := range opted {
		for _, e := range slices.Concat(svc.Pools[:]...) {
			if looked++; looked > h.Lookups {
				return out
			}
			w, err := h.Way(e.Addr.Addr())
			if err != nil || w.Local || told[w.Interface] {
				continue
			}
			if matches(f.Exclude, w.Interface) || len(f.Devices) > 0 && !matches(f.Devices, w.Interface) {
				told[w.Interface] = true
				out = append(out, warning("add \""+w.Interface+"\" to fastpath.devices, or take it out of fastpath.exclude", "%s has opted in, but the way to its endpoint %s is by %s, which is not one of the devices of the fast path",
					svc.Name, e.Addr, w.Interface))
			}
		}
	}
	return out
}
