package doctor

import (
	"context"
	"net"
	"net/netip"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/doctor/firewall"
)

// firewalls gives a check of other programs' rules. It remembers what it need not read again.
func firewalls() func(context.Context, *Host) []finding.Finding {
	checker := firewall.New()
	return func(ctx context.Context, h *Host) []finding.Finding {
		if h.Plan == nil || h.Plan.Node == nil {
			return nil
		}
		return checker.Look(ctx, firewall.Question{Plan: h.Plan, Host: ways{h}, MasqueradeBit: h.Config.Proxy.MasqueradeBit})
	}
}

// ways is what the rules depend on.
type ways struct{ host *Host }

// LinkOf implements firewall.Host.
func (ways) LinkOf(addr netip.Addr) string {
	links, _ := net.Interfaces() // without a list nothing is known
	for _, l := range links {
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
func (w ways) Route(to netip.Addr) (link string, source netip.Addr) {
	r, err := w.host.Route(to)
	if err != nil {
		return "", source
	}
	return r.Interface, r.Source
}
