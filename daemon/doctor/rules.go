package doctor

import (
	"context"
	"net"
	"net/netip"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/doctor/firewall"
)

// foreignRules asks the rules of other programs about connections of the plan.
func foreignRules(ctx context.Context, h *Host) []finding.Finding {
	if h.Rules == nil || h.Plan == nil || h.Plan.Node == nil {
		return nil
	}
	return h.Rules(ctx, firewall.Question{Plan: h.Plan, Host: links{h}, MasqueradeBit: h.Config.Proxy.MasqueradeBit})
}

// links says by which links connections come and go.
type links struct{ host *Host }

// LinkOf implements firewall.Host.
func (links) LinkOf(addr netip.Addr) string {
	all, _ := net.Interfaces() // without a list nothing is known
	for _, l := range all {
		addrs, _ := l.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.AsSlice()) {
				return l.Name
			}
		}
	}
	return ""
}

// Route implements firewall.Host.
func (l links) Route(to netip.Addr) (link string, source netip.Addr) {
	w, err := l.host.Way(to)
	if err != nil {
		return "", source
	}
	return w.Interface, w.Source
}
