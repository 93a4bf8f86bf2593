package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/fault"
)

// foreignRules looks for rules of other programs that drop connections of the plan.
func foreignRules(ctx context.Context, h *Host) []fault.Fault {
	if h.Rules == nil || h.Plan == nil || h.Plan.Node == nil {
		return nil
	}
	return h.Rules(ctx, firewall.Question{
		Plan: h.Plan, Host: &links{host: h},
		MasqueradeBit: h.Config.Proxy.MasqueradeBit,
	})
}

// links knows the links by which connections arrive and leave.
type links struct {
	host *Host
	// byAddr is read once, because a host may have thousands of addresses.
	byAddr map[netip.Addr]string
}

// LinkOf implements firewall.Host.
func (l *links) LinkOf(addr netip.Addr) string {
	if l.byAddr == nil {
		var err error
		if l.byAddr, err = linksByAddr(); err != nil {
			if w, ok := l.host.System.(*watched); ok {
				w.note(err)
			}
		}
	}
	return l.byAddr[addr]
}

// linksByAddr returns the link of each address of this host. If it cannot read a list, it returns what it knows.
func linksByAddr() (map[netip.Addr]string, error) {
	names, out := map[int]string{}, map[netip.Addr]string{}
	all, linksErr := net.Interfaces()
	for _, l := range all {
		names[l.Index] = l.Name
	}
	addrs, addrsErr := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, a := range addrs {
		if at, ok := netip.AddrFromSlice(a.IP); ok && out[at.Unmap()] == "" {
			out[at.Unmap()] = names[a.LinkIndex]
		}
	}
	return out, errors.Join(linksErr, addrsErr)
}

// Route implements firewall.Host.
func (l *links) Route(to netip.Addr) (link string, source netip.Addr) {
	w, err := l.host.Way(to)
	if err != nil {
		return "", source
	}
	return w.Interface, w.Source
}
