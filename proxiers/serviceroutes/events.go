package serviceroutes

import (
	"context"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
	"edgeway/proxiers/rtnl"
)

const (
	// refreshDelay is the delay between an event and a refresh of Edgeway's routes. The follower waits because, when a
	// link goes down, the kernel sends several events and the daemon may compute a plan with another uplink.
	refreshDelay = 100 * time.Millisecond
	// refreshInterval is the minimum time between two refreshes of all routes.
	refreshInterval = time.Second
	retry           = 5 * time.Second
)

// watch starts receiving rtnetlink notifications. When a link goes down, Linux removes the link's IPv4 routes without
// sending route notifications. When Linux removes several routes because their source address is removed, Linux may
// send only one route notification.
func (f *follower) watch() error {
	if f.stopWatcher != nil {
		return nil
	}
	if err := f.network.Open(); err != nil {
		return err
	}
	var ctx context.Context
	ctx, f.stopWatcher = context.WithCancel(context.Background())
	f.env.Contain.Go(&f.watching, "route notifications", func() { f.network.Run(ctx) })
	return nil
}

// handle schedules a refresh of Edgeway's routes if the notification is relevant. handle always returns false, because
// scheduleRefresh already batches the events.
func (f *follower) handle(m *syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		to, protocol, ok := rtnl.ParseRoute(m.Data)
		own := protocol == Protocol
		removed := m.Header.Type == unix.RTM_DELROUTE
		switch {
		// Byte 4 of struct rtmsg, rtnetlink(7), is the routing table.
		case !ok || own && (!removed || !f.has(to)) || slices.Contains(f.ignored, int(m.Data[4])):
		case own:
			f.scheduleRefresh(to)
		case f.touches(to):
			f.scheduleRefresh(netip.Prefix{})
		}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		f.scheduleRefresh(netip.Prefix{})
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if f.isSource(m.Data) {
			f.scheduleRefresh(netip.Prefix{})
		}
	case unix.RTM_NEWLINK:
		if f.wentDown(m.Data) {
			f.scheduleRefresh(netip.Prefix{})
		}
	}
	return false
}

// scheduleRefresh schedules a refresh of all routes. lost is the destination of an Edgeway route that another program
// removed, or the zero Prefix.
func (f *follower) scheduleRefresh(lost netip.Prefix) {
	f.mu.Lock()
	if lost.IsValid() {
		f.removedRoute = lost
	}
	known := !f.nextRefresh.IsZero()
	if !known {
		f.nextRefresh = time.Now().Add(refreshDelay)
		if rested := f.lastRefresh.Add(refreshInterval); rested.After(f.nextRefresh) {
			f.nextRefresh = rested
		}
	}
	f.mu.Unlock()
	if !known {
		f.env.Wake()
	}
}

func (f *follower) has(to netip.Prefix) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.presentRoutes[to]
	return ok
}

func (f *follower) touches(to netip.Prefix) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.destinations.touches(to)
}

func (f *follower) isSource(message []byte) bool {
	if len(message) < unix.SizeofIfAddrmsg {
		return false
	}
	attrs, err := nl.ParseRouteAttr(message[unix.SizeofIfAddrmsg:])
	if err != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range attrs {
		// For an IPv4 address with a peer, IFA_LOCAL is the host's address. IPv6 has only IFA_ADDRESS.
		addr, ok := netip.AddrFromSlice(a.Value)
		if ok && (a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS) &&
			slices.ContainsFunc(f.uplinks, func(u plan.Uplink) bool { return u.Addr == addr }) {
			return true
		}
	}
	return false
}

func (f *follower) wentDown(message []byte) bool {
	if len(message) < unix.SizeofIfInfomsg {
		return false
	}
	info := nl.DeserializeIfInfomsg(message)
	if info.Flags&unix.IFF_UP != 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.presentRoutes {
		if r.link == int(info.Index) {
			return true
		}
	}
	return false
}
