package doctor

import (
	"context"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/doctor/firewall"
)

// foreignRules asks the rules of other programs about connections of the plan.
func foreignRules(ctx context.Context, h *Host) []finding.Finding {
	if h.Rules == nil || h.Plan == nil || h.Plan.Node == nil {
		return nil
	}
	return h.Rules(ctx, firewall.Question{Plan: h.Plan, Host: &links{host: h}, MasqueradeBit: h.Config.Proxy.MasqueradeBit})
}

// links says by which links connections come and go.
type links struct {
	host *Host
	// byAddr is asked for once: a host may have thousands of addresses.
	byAddr map[netip.Addr]string
}

// LinkOf implements firewall.Host.
func (l *links) LinkOf(addr netip.Addr) string {
	if l.byAddr == nil {
		l.byAddr = linksByAddr()
	}
	return l.byAddr[addr]
}

// linksByAddr gives the links that have the addresses of this host. Without one of the lists nothing is known.
func linksByAddr() map[netip.Addr]string {
	names, out := map[int]string{}, map[netip.Addr]string{}
	all, _ := net.Interfaces()
	for _, l := range all {
		names[l.Index] = l.Name
	}
	addrs, _ := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, a := range addrs {
		if at, ok := netip.AddrFromSlice(a.IP); ok && out[at.Unmap()] == "" {
			out[at.Unmap()] = names[a.LinkIndex]
		}
	}
	return out
}

// Route implements firewall.Host.
func (l *links) Route(to netip.Addr) (link string, source netip.Addr) {
	w, err := l.host.Way(to)
	if err != nil {
		return "", source
	}
	return w.Interface, w.Source
}
